"""Address spaces: what may be given, what is refused, and next-fit without writing the space out."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from subnetes.ipam.addresses import (
    PAGE,
    Addresses,
    AddressSpace,
    AlreadyAllocated,
    InvalidCIDR,
    InvalidExclude,
    InvalidGateway,
    InvalidSubnet,
    NeverGiven,
    NotAllocated,
    NothingToGive,
    OutsideSubnet,
    take,
)
from subnetes.ipam.intervals import Intervals, merged

FULL = (1 << PAGE) - 1


@pytest.mark.parametrize(
    ("cidr", "gateway", "capacity"),
    [
        ("10.0.0.0/24", "10.0.0.1", 253),
        ("10.0.0.0/16", "10.0.0.1", 65533),
        ("10.0.0.0/8", "10.0.0.1", 2**24 - 3),
        ("10.0.0.0/30", "10.0.0.1", 1),
        ("10.0.0.4/31", "10.0.0.4", 1),
        ("fd00::/64", "fd00::1", 2**64 - 2),
        ("fd00::/48", "fd00::1", 2**80 - 2),
        ("fd00::/127", "fd00::", 1),
        ("FD00:0::/126", "fd00::1", 2),
    ],
)
def test_the_gateway_is_the_first_address_unless_given(cidr: str, gateway: str, capacity: int) -> None:
    space = AddressSpace.parse(cidr)
    assert (space.gateway, space.capacity) == (gateway, capacity)
    assert not space.may_give(space.offset(gateway))


def test_routers_may_be_reached_by_their_anycast_address() -> None:
    space = AddressSpace.parse("fd00::/64", "fd00::")
    assert (space.gateway, space.capacity) == ("fd00::", 2**64 - 1)


def test_what_a_space_says_of_itself() -> None:
    space = AddressSpace.parse("10.1.0.0/16", "10.1.255.254")
    assert (space.cidr, space.family, space.prefix_length, space.size) == ("10.1.0.0/16", 4, 16, 65536)
    assert (space.gateway, space.page_count) == ("10.1.255.254", 16)
    assert AddressSpace.parse("fd00::/64").page_count == 2**52
    assert AddressSpace.parse("10.0.0.0/24").page_count == 1


@pytest.mark.parametrize(
    ("exclude", "covers"),
    [
        (["10.0.0.9"], {9}),
        (["10.0.0.9-10.0.0.11"], {9, 10, 11}),
        (["10.0.0.9 - 10.0.0.10"], {9, 10}),
        (["10.0.0.8/30"], {8, 9, 10, 11}),
        (["10.0.0.8/30", "10.0.0.10-10.0.0.13", "10.0.0.9"], {8, 9, 10, 11, 12, 13}),
        (["10.0.0.0/30"], {2, 3}),  # beside what is never given anyway
        (["10.0.0.1"], set()),
        (["10.0.0.255"], set()),
    ],
)
def test_excludes_are_never_given(exclude: list[str], covers: set[int]) -> None:
    space = AddressSpace.parse("10.0.0.0/24", exclude=exclude)
    never = {offset for offset in range(256) if not space.may_give(offset)}
    assert never == {0, 1, 255} | covers
    assert space.capacity == 256 - len(never)
    assert space.blocked(0) == FULL ^ sum(1 << offset for offset in range(256) if offset not in never)


@pytest.mark.parametrize(
    ("cidr", "gateway", "exclude", "error", "says"),
    [
        ("10.0.0.1/24", None, [], InvalidCIDR, "the network is 10.0.0.0/24"),
        ("fd00::1/64", None, [], InvalidCIDR, "the network is fd00::/64"),
        ("10.0.0.0", None, [], InvalidCIDR, "prefix length"),
        ("10.0.0.0/255.255.255.0", None, [], InvalidCIDR, "prefix length"),
        ("10.0.0.0/33", None, [], InvalidCIDR, "at most 32 bits"),
        ("10.0.0.0/-1", None, [], InvalidCIDR, "prefix length"),
        ("fd00::%eth0/64", None, [], InvalidCIDR, "no CIDR"),
        ("10.0.0/24", None, [], InvalidCIDR, "no CIDR"),
        ("", None, [], InvalidCIDR, "no CIDR"),
        ("10.0.0.0/24", "10.0.1.1", [], InvalidGateway, "'10.0.1.1' is no address of 10.0.0.0/24"),
        ("10.0.0.0/24", "fd00::1", [], InvalidGateway, "no address of 10.0.0.0/24"),
        ("10.0.0.0/24", "first", [], InvalidGateway, "no address of 10.0.0.0/24"),
        ("10.0.0.0/24", "10.0.0.0", [], InvalidGateway, "network or broadcast address of 10.0.0.0/24"),
        ("10.0.0.0/24", "10.0.0.255", [], InvalidGateway, "network or broadcast address of 10.0.0.0/24"),
        ("10.0.0.0/24", None, ["10.0.1.7"], InvalidExclude, "'10.0.1.7' is not inside 10.0.0.0/24"),
        ("10.0.0.0/24", None, ["10.0.0.250-10.0.1.3"], InvalidExclude, "not inside 10.0.0.0/24"),
        ("10.0.0.0/24", None, ["10.0.0.0/16"], InvalidExclude, "not inside 10.0.0.0/24"),
        ("10.0.0.0/24", None, ["fd00::1"], InvalidExclude, "not inside 10.0.0.0/24"),
        ("10.0.0.0/24", None, ["10.0.0.9-fd00::1"], InvalidExclude, "no address, range"),
        ("10.0.0.0/24", None, ["10.0.0.9-10.0.0.7"], InvalidExclude, "write 10.0.0.7-10.0.0.9"),
        ("10.0.0.0/24", None, ["10.0.0.9/30"], InvalidExclude, "the network is 10.0.0.8/30"),
        ("10.0.0.0/24", None, ["10.0.0.1-2-3"], InvalidExclude, "no address, range"),
        ("10.0.0.0/24", None, [""], InvalidExclude, "no address, range"),
        ("10.0.0.0/24", None, ["10.0.0.0/24"], NothingToGive, "no address of 10.0.0.0/24 is left to give"),
        ("10.0.0.0/24", None, ["10.0.0.0/25", "10.0.0.128-10.0.0.254"], NothingToGive, "exclude less"),
        ("fd00::/64", None, ["fd00::/64"], NothingToGive, "exclude less"),
        ("10.0.0.1/32", None, [], NothingToGive, "larger subnet"),
        ("fd00::1/128", None, [], NothingToGive, "larger subnet"),
    ],
)
def test_what_cannot_serve_is_refused_with_the_reason(
    cidr: str, gateway: str | None, exclude: list[str], error: type[InvalidSubnet], says: str
) -> None:
    with pytest.raises(error, match=says):
        AddressSpace.parse(cidr, gateway, exclude)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("10.0.0.0/24", "10.0.0.0/16", True),
        ("10.0.0.0/24", "10.0.0.128/25", True),
        ("10.0.0.0/24", "10.0.1.0/24", False),
        ("10.0.0.0/8", "fd00::/64", False),
        ("::/8", "10.0.0.0/8", False),  # the same numbers, in another family
    ],
)
def test_overlap(one: str, other: str, overlap: bool) -> None:
    left, right = AddressSpace.parse(one), AddressSpace.parse(other)
    assert left.overlaps(right) is right.overlaps(left) is overlap


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "0.0.0.0/1", "255.255.255.0/24", "fd00::/64"])
@given(st.data())
@settings(deadline=None)
def test_an_address_and_its_offset_are_one_to_one(cidr: str, data: st.DataObject) -> None:
    space = AddressSpace.parse(cidr)
    offset = data.draw(st.integers(0, space.size - 1))
    assert space.offset(space.address(offset)) == offset


@pytest.mark.parametrize("text", ["10.0.1.0", "fd00::1", "", "10.0.0", "10.0.0.1%1"])
def test_an_address_of_another_subnet_has_no_offset(text: str) -> None:
    with pytest.raises(OutsideSubnet, match=r"no address of 10\.0\.0\.0/24"):
        AddressSpace.parse("10.0.0.0/24").offset(text)


@pytest.mark.parametrize("offset", [-1, 256])
def test_an_offset_beyond_the_end_has_no_address(offset: int) -> None:
    space = AddressSpace.parse("10.0.0.0/24")
    assert not space.may_give(offset)
    with pytest.raises(OutsideSubnet, match="256 addresses"):
        space.address(offset)


def test_pages_without_an_address_to_give_are_passed_over() -> None:
    space = AddressSpace.parse("10.0.0.0/16", exclude=["10.0.16.0-10.0.79.255", "10.0.240.0/20"])
    assert [space.next_open_page(number) for number in (0, 1, 4, 5, 14, 15, 16, 99)] == [
        0, 5, 5, 5, 14, None, None, None
    ]  # fmt: skip
    assert space.blocked(3) == FULL
    assert space.blocked(16) == FULL


def test_the_pages_of_a_large_ipv6_space_are_passed_over_at_once() -> None:
    space = AddressSpace.parse("fd00::/64", exclude=["fd00::-fd00::7fff:ffff:ffff:ffff"])
    assert space.next_open_page(0) == 2**51
    assert Addresses(space).allocate(2) == ["fd00::8000:0:0:0", "fd00::8000:0:0:1"]


@pytest.mark.parametrize(
    ("used", "blocked", "start", "count", "given_"),
    [
        (0, 0, 0, 2, [0, 1]),
        (0b1011, 0, 0, 2, [2, 4]),
        (0b1011, 0b10100, 0, 2, [5, 6]),
        (0, 0, PAGE - 1, 2, [PAGE - 1, 0]),
        (0, 0, PAGE, 1, [0]),
        (FULL ^ 0b100, 0, 9, 5, [2]),
        (FULL, 0, 0, 1, []),
        (0, FULL, 0, 1, []),
        (0, 0, 7, 0, []),
    ],
)
def test_next_fit_in_a_page(used: int, blocked: int, start: int, count: int, given_: list[int]) -> None:
    assert take(used, blocked, start, count) == (used | sum(1 << bit for bit in given_), given_)


BITMAPS = st.integers(0, FULL) | st.integers(0, FULL).map(lambda bits: FULL ^ (bits & -bits))


@given(BITMAPS, BITMAPS, st.integers(0, PAGE), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_page_gives_what_a_walk_along_it_would(used: int, blocked: int, start: int, count: int) -> None:
    around = [*range(start, PAGE), *range(start)]
    open_ = [bit for bit in around if not (used | blocked) >> bit & 1]
    after, bits = take(used, blocked, start, count)
    assert bits == open_[:count]
    assert after == used | sum(1 << bit for bit in bits)


def test_a_freed_address_rests_until_the_search_has_gone_around() -> None:
    addresses = Addresses(AddressSpace.parse("10.0.0.0/28"))
    first = addresses.allocate(3)
    assert first == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    addresses.free("10.0.0.2")
    assert addresses.allocate(10) == [f"10.0.0.{number}" for number in range(5, 15)]
    assert addresses.allocate(16) == ["10.0.0.2"]
    assert addresses.allocate(16) == []
    assert addresses.count() == 13 == addresses.space.capacity


def test_a_page_is_left_at_its_end_though_it_has_a_free_one_behind() -> None:
    addresses = Addresses(AddressSpace.parse("10.0.0.0/19"))
    addresses.allocate(PAGE - 4)
    addresses.free("10.0.0.9")
    assert addresses.allocate(4) == ["10.0.15.254", "10.0.15.255", "10.0.16.0", "10.0.16.1"]
    assert addresses.allocate(PAGE)[-2:] == ["10.0.31.254", "10.0.0.9"]


SPARSE = (
    AddressSpace.parse(  # four pages: a few at the end of the first, none in the second, some in the others
        "10.0.0.0/18", exclude=["10.0.0.0-10.0.15.250", "10.0.16.0-10.0.32.3", "10.0.32.8-10.0.63.250"]
    )
)
GIVABLE = [SPARSE.address(offset) for offset in range(SPARSE.size) if SPARSE.may_give(offset)]
GIVABLE_AT = {SPARSE.offset(address): address for address in GIVABLE}
STEPS = st.one_of(st.integers(0, 9), st.sampled_from(GIVABLE))


@given(st.lists(STEPS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_next_fit_over_the_whole_space_is_a_walk_around_it(steps: list[int | str]) -> None:
    """A number allocates so many; an address is freed if it is in use, and claimed if it is not."""
    addresses, used, cursor = Addresses(SPARSE), set[str](), 0
    for step in steps:
        if isinstance(step, int):
            around = sorted(GIVABLE_AT, key=lambda at: (at < cursor, at))
            walk = [GIVABLE_AT[at] for at in around if GIVABLE_AT[at] not in used][:step]
            assert addresses.allocate(step) == walk
            used.update(walk)
            cursor = SPARSE.offset(walk[-1]) + 1 if walk else cursor
        elif step in used:
            addresses.free(step)
            used.remove(step)
        else:
            addresses.claim(step)
            used.add(step)
        assert addresses.count() == len(used)
    assert set(addresses) == used
    assert list(addresses) == [one for one in GIVABLE if one in used]


def test_claims_and_mistakes() -> None:
    addresses = Addresses(AddressSpace.parse("10.0.0.0/29", exclude=["10.0.0.6"]))
    addresses.claim("10.0.0.3")
    with pytest.raises(AlreadyAllocated, match=r"10\.0\.0\.3 is already in use"):
        addresses.claim("10.0.0.3")
    for never in ("10.0.0.0", "10.0.0.1", "10.0.0.6", "10.0.0.7"):
        with pytest.raises(NeverGiven, match="reserved or excluded"):
            addresses.claim(never)
    with pytest.raises(NotAllocated, match=r"10\.0\.0\.2 is not in use"):
        addresses.free("10.0.0.2")
    with pytest.raises(OutsideSubnet):
        addresses.claim("10.0.0.8")
    assert addresses.allocate(9) == ["10.0.0.2", "10.0.0.4", "10.0.0.5"]
    assert list(addresses) == [f"10.0.0.{number}" for number in range(2, 6)]
    assert "10.0.0.3" in addresses
    addresses.free("10.0.0.3")
    assert "10.0.0.3" not in addresses
    assert addresses.count() == 3


RUNS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda run: (run[0], run[0] + run[1])))


@given(RUNS, st.lists(st.tuples(st.booleans(), st.integers(0, 50))))
@settings(deadline=None)
def test_intervals_are_a_set(runs: list[tuple[int, int]], edits: list[tuple[bool, int]]) -> None:
    intervals = Intervals(merged(runs))
    model = {number for first, last in runs for number in range(first, last + 1)}
    for adds, number in edits:
        (intervals.add if adds else intervals.discard)(number)
        (model.add if adds else model.discard)(number)
    for number in range(52):
        assert (intervals.run_of(number) is not None) == (number in model)
        assert intervals.first_beyond(number) == next(n for n in range(number, 70) if n not in model)
    inside = [n for first, last in intervals.within(5, 30) for n in range(first, last + 1)]
    assert inside == sorted(model & set(range(5, 31)))
    everything = intervals.within(0, 100)
    assert everything == list(merged(everything)), "runs touch"
