"""NCs taken into the record as NNCs show them."""

import re
from dataclasses import replace

import pytest

from subnetes.dnc.errors import SubnetInUse, SubnetInvalid, SubnetUnknown
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.types import AdoptedNC, Declaration, Fence, SecondaryIP, SubnetKey

A = SubnetKey("", "a", 4)


def shown(nc: str, node: str, primary: str, *addresses: str) -> AdoptedNC:
    ips = tuple(SecondaryIP(f"{nc}-{address}", address) for address in addresses)
    return AdoptedNC(nc, node, A, "10.0.0.0/28", "10.0.0.1", primary, 7, ips)


async def test_an_adopted_nc_is_as_it_was_shown(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one = shown("one", "n", "10.0.0.4", "10.0.0.5", "10.0.0.9")
    for _ in range(2):
        assert await dnc.adopt("c", [one]) == ()
    (nc,) = await dnc.ncs("c")
    assert (nc.id, nc.node, nc.primary, nc.version, nc.secondary) == (
        "one",
        "n",
        "10.0.0.4",
        7,
        one.secondary,
    )
    assert (nc.target, nc.waiting) == (2, 0)
    assert await dnc.ensure_nc("c", "n", A) == nc
    assert (await dnc.utilization(A)).reserved == 3


async def test_what_was_adopted_is_never_granted(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    await dnc.adopt("c", [shown("one", "n", "10.0.0.4", "10.0.0.5", "10.0.0.9")])
    other = await dnc.ensure_nc("c", "m", A)
    granted = (await dnc.set_secondary("c", other.id, Fence("u", 1), 50, [])).nc
    held = {granted.primary, *(ip.address for ip in granted.secondary)}
    assert len(held) == 10
    assert not held & {"10.0.0.4", "10.0.0.5", "10.0.0.9"}


async def test_an_undeclared_subnet_is_recorded_and_grants_nothing_until_declared(dnc: SqlAllocator) -> None:
    await dnc.adopt("c", [shown("one", "n", "10.0.0.4", "10.0.0.5")])
    (subnet,) = await dnc.subnets()
    assert (subnet.key, subnet.declared, subnet.cidr) == (A, False, "10.0.0.0/28")
    with pytest.raises(SubnetUnknown):
        await dnc.ensure_nc("c", "m", A)
    result = await dnc.set_secondary("c", "one", Fence("u", 1), 4, [])
    assert (len(result.nc.secondary), result.nc.waiting) == (1, 3)
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24", None, ("10.0.0.5",)))
    result = await dnc.set_secondary("c", "one", Fence("u", 1), 4, [])
    assert (len(result.nc.secondary), result.nc.waiting) == (4, 0)
    usage = await dnc.utilization(A)
    assert (usage.capacity, usage.reserved, usage.free) == (252, 5, 252 - 4)  # one of them is excluded
    await dnc.set_secondary("c", "one", Fence("u", 2), 3, ["one-10.0.0.5"])
    await dnc.confirm("c", "one", ["one-10.0.0.5"])
    usage = await dnc.utilization(A)
    assert (usage.reserved, usage.free) == (4, 252 - 4)


async def test_a_declaration_must_contain_what_was_adopted(dnc: SqlAllocator) -> None:
    await dnc.adopt("c", [shown("one", "n", "10.0.0.4", "10.0.0.5")])
    with pytest.raises(SubnetInUse, match=r"10\.0\.0\.4"):
        await dnc.ensure_subnet(Declaration(A, "10.0.0.8/29"))


async def test_an_undeclared_subnet_goes_with_its_last_nc(dnc: SqlAllocator) -> None:
    await dnc.adopt("c", [shown("one", "n", "10.0.0.4"), shown("two", "m", "10.0.0.5")])
    await dnc.delete_nc("c", "one")
    assert len(await dnc.subnets()) == 1
    await dnc.delete_nc("c", "two")
    assert await dnc.subnets() == []


async def test_a_conflict_is_reported_kept_and_released_without_its_owner(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one, two = (
        shown("one", "n", "10.0.0.4", "10.0.0.5"),
        shown("two", "m", "10.0.0.6", "10.0.0.5", "10.0.0.7"),
    )
    (conflict,) = await dnc.adopt("c", [one, two])
    assert (conflict.address, conflict.id, conflict.nc) == ("10.0.0.5", "two-10.0.0.5", "two")
    assert (conflict.owner_nc, conflict.reason) == ("one", "another network container has this address")
    assert await dnc.adopt("c", [one, two]) == (conflict,)
    assert (await dnc.nc("c", "two")).secondary == two.secondary
    assert (await dnc.utilization(A)).reserved == 4
    released = await dnc.set_secondary("c", "two", Fence("u", 1), 1, ["two-10.0.0.5"])
    assert [ip.address for ip in released.nc.secondary] == ["10.0.0.7"]
    assert (released.nc.version, released.nc.leaving) == (8, ())  # the owner's is no business of the others
    assert (await dnc.nc("c", "one")).secondary == one.secondary
    assert (await dnc.utilization(A)).reserved == 4


async def test_a_conflict_ends_when_the_owner_is_gone(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one, two = shown("one", "n", "10.0.0.4"), shown("two", "m", "10.0.0.4")
    assert [c.id for c in await dnc.adopt("c", [one, two])] == [""]
    await dnc.delete_nc("c", "one")
    assert await dnc.adopt("c", [two]) == ()
    assert (await dnc.utilization(A)).reserved == 1
    assert await dnc.delete_nc("c", "two") == 1


async def test_another_clusters_nc_is_not_named(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    await dnc.adopt("c", [shown("one", "n", "10.0.0.4")])
    (conflict,) = await dnc.adopt("d", [shown("two", "n", "10.0.0.4")])
    assert conflict.owner_nc is None
    (conflict,) = await dnc.adopt("d", [shown("one", "n", "10.0.0.9")])
    assert (conflict.address, conflict.reason) == ("", "network container one is on record for another node")


@pytest.mark.parametrize(
    ("ips", "why"),
    [
        ([("x", "10.0.0.99")], r"outside of 10\.0\.0\.0/28"),
        ([("x", "no address")], "outside"),
        ([("x", "10.0.0.4")], "under another id"),
        ([("x", "10.0.0.5"), ("y", "10.0.0.5")], "under another id"),
        ([("x", "10.0.0.5"), ("x", "10.0.0.6")], "another address under this id"),
    ],
)
async def test_odd_ips_are_conflicts_and_can_be_let_go(
    dnc: SqlAllocator, ips: list[tuple[str, str]], why: str
) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    odd = replace(shown("one", "n", "10.0.0.4"), secondary=tuple(SecondaryIP(*ip) for ip in ips))
    (conflict,) = await dnc.adopt("c", [odd])
    assert re.search(why, conflict.reason)
    assert await dnc.adopt("c", [odd]) == (conflict,)
    assert len((await dnc.nc("c", "one")).secondary) == len(ips)
    after = await dnc.set_secondary("c", "one", Fence("u", 1), 0, ["x", "y"])
    assert after.nc.secondary == ()
    await dnc.confirm("c", "one", ["x", "y"])
    assert (await dnc.utilization(A)).reserved == 1


async def test_malformed_ncs_are_reported_and_the_others_adopted(dnc: SqlAllocator) -> None:
    bad = replace(shown("bad", "n", "10.0.0.4"), cidr="nonsense", subnet=SubnetKey("", "b", 4))
    worse = replace(shown("worse", "n", "10.0.0.4"), node="\x00")
    conflicts = await dnc.adopt("c", [bad, worse, shown("good", "n", "10.0.0.4")])
    assert {conflict.nc for conflict in conflicts} == {"bad", "worse"}
    assert [nc.id for nc in await dnc.ncs("c")] == ["good"]


async def test_an_nc_of_an_overlapping_subnet_is_kept_where_its_addresses_are(dnc: SqlAllocator) -> None:
    """Two names for one range: what is in use under one must not be granted under the other."""
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    alias = replace(shown("one", "n", "10.0.0.4", "10.0.0.5"), subnet=SubnetKey("", "alias", 4))
    for _ in range(2):
        (conflict,) = await dnc.adopt("c", [alias])
        assert "overlaps a (IPv4)" in conflict.reason
    assert (await dnc.nc("c", "one")).subnet == A
    assert (await dnc.utilization(A)).reserved == 2
    with pytest.raises(SubnetInvalid):
        await dnc.ensure_subnet(Declaration(alias.subnet, "10.0.0.0/28"))


async def test_a_record_that_is_ahead_does_not_take_back_what_was_let_go(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one = shown("one", "n", "10.0.0.4", "10.0.0.5")
    await dnc.adopt("c", [one])
    await dnc.set_secondary("c", "one", Fence("u", 1), 0, ["one-10.0.0.5"])
    assert await dnc.adopt("c", [one]) == ()  # the status was not written yet
    nc = await dnc.nc("c", "one")
    assert (nc.secondary, nc.leaving) == ((), one.secondary)
    await dnc.confirm("c", "one", ["one-10.0.0.5"])
    assert await dnc.adopt("c", [one]) == ()
    assert (await dnc.nc("c", "one")).secondary == ()
    assert await dnc.adopt("c", [replace(one, version=9)]) == ()  # the record was older after all
    nc = await dnc.nc("c", "one")
    assert (nc.version, nc.secondary) == (9, one.secondary)


async def test_what_a_newer_status_shows_is_leaving_no_longer(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one = shown("one", "n", "10.0.0.4", "10.0.0.5")
    await dnc.adopt("c", [one])
    await dnc.set_secondary("c", "one", Fence("u", 1), 0, ["one-10.0.0.5"])
    assert await dnc.adopt("c", [replace(one, version=9)]) == ()
    nc = await dnc.nc("c", "one")
    assert (nc.secondary, nc.leaving) == (one.secondary, ())
    assert await dnc.confirm("c", "one", ["one-10.0.0.5"]) == 0
    assert (await dnc.utilization(A)).reserved == 2


async def test_what_two_show_goes_to_the_other_when_its_owner_lets_go(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one = shown("one", "n", "10.0.0.4", "10.0.0.5")
    two = shown("two", "m", "10.0.0.4", "10.0.0.5", "10.0.0.6")
    await dnc.adopt("c", [one, two])
    await dnc.set_secondary("c", "one", Fence("u", 1), 0, ["one-10.0.0.5"])
    assert await dnc.confirm("c", "one", ["one-10.0.0.5"]) == 0
    assert (await dnc.nc("c", "two")).secondary == two.secondary
    assert await dnc.delete_nc("c", "one") == 0
    assert await dnc.adopt("c", [two]) == ()
    assert (await dnc.utilization(A)).reserved == 3
    assert await dnc.delete_nc("c", "two") == 3


async def test_what_a_second_nnc_shows_under_one_id_is_kept_and_not_granted(dnc: SqlAllocator) -> None:
    """The first one has the id; the second one's addresses are reserved by a stand-in."""
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    first, second = shown("one", "n", "10.0.0.4", "10.0.0.5"), shown("one", "m", "10.0.0.4", "10.0.0.6")
    for _ in range(2):
        (conflict,) = await dnc.adopt("c", [first, second])
        assert (conflict.nc, conflict.reason) == (
            "one",
            "network container one is on record for another node",
        )
    (stand_in,) = await dnc.ncs("c", "m")
    assert (stand_in.shown_as, stand_in.secondary) == ("one", second.secondary)
    own = await dnc.ensure_nc("c", "m", A)
    assert (own.shown_as, own.secondary) == ("", ())
    granted = (await dnc.set_secondary("c", own.id, Fence("u", 1), 50, [])).nc
    assert not {"10.0.0.4", "10.0.0.5", "10.0.0.6"} & {ip.address for ip in granted.secondary}
    assert await dnc.delete_nc("c", "one") == 1  # what the second one shows too is not free
    assert await dnc.adopt("c", [second]) == ()
    nc = await dnc.nc("c", "one")
    assert (nc.node, nc.primary, nc.secondary) == ("m", "10.0.0.4", second.secondary)
    assert {each.id for each in await dnc.ncs("c", "m")} == {"one", own.id}
    assert (await dnc.utilization(A)).free == 1


async def test_what_was_shown_outside_is_its_ncs_once_the_subnet_has_grown(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    conflicts = await dnc.adopt("c", [shown("one", "n", "10.0.0.4", "10.0.0.20", "10.0.9.9", "none")])
    assert {each.address for each in conflicts} == {"10.0.0.20", "10.0.9.9", "none"}
    for _ in range(2):
        await dnc.ensure_subnet(Declaration(A, "10.0.0.0/27"))
        assert (await dnc.utilization(A)).reserved == 2
    other = await dnc.ensure_nc("c", "m", A)
    granted = (await dnc.set_secondary("c", other.id, Fence("u", 1), 50, [])).nc
    assert len(granted.secondary) == 29 - 3
    assert "10.0.0.20" not in {ip.address for ip in granted.secondary}
    await dnc.set_secondary("c", "one", Fence("u", 1), 0, ["one-10.0.0.20"])
    assert await dnc.confirm("c", "one", ["one-10.0.0.20"]) == 1


async def test_who_takes_over_after_a_restore_is_not_behind_what_was_read_before_it(
    dnc: SqlAllocator,
) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    one = shown("one", "n", "10.0.0.4", "10.0.0.5")
    await dnc.adopt("c", [one])
    ahead = (await dnc.set_secondary("c", "one", Fence("u", 9_000), 3, [])).nc
    assert await dnc.adopt("c", [one]) == ()
    assert (await dnc.nc("c", "one")).secondary == ahead.secondary, "the record is ahead of what is shown"
    assert len((await dnc.set_secondary("c", "one", Fence("u", 12), 4, [])).nc.secondary) == 4
