"""Subnets: declared, grown, changed, refused, deleted."""

import pytest

from subnetes.dnc.errors import BadRequest, SubnetInUse, SubnetInvalid, SubnetUnknown
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.types import Declaration, Fence, SubnetKey

A = SubnetKey("", "a", 4)
B = SubnetKey("", "b", 4)


async def fill(dnc: SqlAllocator, key: SubnetKey, target: int = 300) -> list[str]:
    nc = await dnc.ensure_nc("c", "filler", key)
    nc = (await dnc.set_secondary("c", nc.id, Fence("u", 1), target, [])).nc
    return [nc.primary, *(ip.address for ip in nc.secondary)]


async def test_declaring_twice_is_declaring_once(dnc: SqlAllocator) -> None:
    first = await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24", "10.0.0.1", ("10.0.0.100-10.0.0.109",)))
    again = await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24", "10.0.0.1", ("10.0.0.100-10.0.0.109",)))
    assert first == again
    assert (first.capacity, first.reserved, first.free) == (243, 0, 243)
    assert len(await dnc.subnets()) == 1


async def test_network_broadcast_gateway_and_excludes_are_never_given(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28", "10.0.0.5", ("10.0.0.8/30",)))
    given = await fill(dnc, A)
    assert given == [f"10.0.0.{n}" for n in (1, 2, 3, 4, 6, 7, 12, 13, 14)]
    assert (await dnc.utilization(A)).free == 0


@pytest.mark.parametrize(
    ("cidr", "gateway", "exclude", "family", "text"),
    [
        ("10.0.0.5/24", None, (), 4, "10.0.0.0/24"),
        ("nonsense", None, (), 4, "nonsense"),
        ("10.0.0.0/24", "10.0.1.1", (), 4, "gateway"),
        ("10.0.0.0/24", None, ("10.0.0.0/24",), 4, "no address"),
        ("10.0.0.0/24", None, ("10.9.0.1",), 4, "not inside"),
        ("10.0.0.0/24", None, (), 6, "IPv4 network"),
    ],
)
async def test_a_declaration_that_contradicts_itself_is_refused(
    dnc: SqlAllocator, cidr: str, gateway: str | None, exclude: tuple[str, ...], family: int, text: str
) -> None:
    with pytest.raises(SubnetInvalid, match=text):
        await dnc.ensure_subnet(Declaration(SubnetKey("", "a", family), cidr, gateway, exclude))
    assert await dnc.subnets() == []


async def test_overlaps_are_refused_within_one_network_only(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24"))
    with pytest.raises(SubnetInvalid, match=r"overlaps 10\.0\.0\.0/24 of subnet a"):
        await dnc.ensure_subnet(Declaration(B, "10.0.0.128/25"))
    await dnc.ensure_subnet(Declaration(SubnetKey("other", "b", 4), "10.0.0.128/25"))
    await dnc.ensure_subnet(Declaration(B, "10.0.1.0/24"))
    with pytest.raises(SubnetInvalid, match="overlaps"):
        await dnc.ensure_subnet(Declaration(A, "10.0.0.0/23"))
    assert (await dnc.utilization(A)).capacity == 253


@pytest.mark.parametrize("grown", ["10.0.0.0/23", "10.0.0.0/16", "10.0.0.0/8"])
async def test_growing_works_live_also_downwards(dnc: SqlAllocator, grown: str) -> None:
    """10.0.1.0/24 lies in the upper half of the /23: every offset changes, and nothing that is held does."""
    await dnc.ensure_subnet(Declaration(A, "10.0.1.0/24"))
    held = await fill(dnc, A, target=252)
    assert (await dnc.utilization(A)).free == 0
    after = await dnc.ensure_subnet(Declaration(A, grown))
    assert (after.reserved, after.free) == (253, after.capacity - 253)
    more = await dnc.ensure_nc("c", "other", A)
    batch = (await dnc.set_secondary("c", more.id, Fence("u", 2), 240, [])).nc
    assert len(batch.secondary) == 240
    assert not {more.primary, *(ip.address for ip in batch.secondary)} & set(held)
    assert batch.cidr == grown


async def test_shrinking_below_what_is_held_is_refused_with_the_reason(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24"))
    await fill(dnc, A, target=100)
    with pytest.raises(SubnetInUse, match=r"such as 10\.0\.0\.64, 10\.0\.0\.65") as refused:
        await dnc.ensure_subnet(Declaration(A, "10.0.0.0/26"))
    assert "10.0.0.64" in refused.value.addresses
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/25"))
    assert (await dnc.utilization(A)).free == 125 - 101


async def test_excluding_what_is_held_is_refused_and_what_is_free_is_not(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    await fill(dnc, A, target=3)
    with pytest.raises(SubnetInUse, match=r"10\.0\.0\.4"):
        await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28", None, ("10.0.0.4",)))
    with pytest.raises(SubnetInUse, match=r"10\.0\.0\.3"):
        await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28", "10.0.0.3"))
    assert (await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28", None, ("10.0.0.8/29",)))).free == 2
    assert (await dnc.ensure_subnet(Declaration(A, "10.0.0.0/28"))).free == 9
    assert await fill(dnc, A, target=99) == [f"10.0.0.{n}" for n in range(2, 15)]


async def test_a_subnet_with_ncs_cannot_be_deleted(dnc: SqlAllocator) -> None:
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24"))
    nc = await dnc.ensure_nc("c", "n", A)
    with pytest.raises(SubnetInUse, match=nc.id):
        await dnc.delete_subnet(A)
    assert await dnc.delete_nc("c", nc.id) == 1
    await dnc.delete_subnet(A)
    await dnc.delete_subnet(A)
    with pytest.raises(SubnetUnknown):
        await dnc.utilization(A)


async def test_odd_names_and_numbers_are_refused_before_they_reach_the_database(dnc: SqlAllocator) -> None:
    for key in (
        SubnetKey("", "", 4),
        SubnetKey("", "a\x00", 4),
        SubnetKey("\ud800", "a", 4),
        SubnetKey("", "a", 5),
    ):
        with pytest.raises(BadRequest):
            await dnc.utilization(key)
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/24"))
    nc = await dnc.ensure_nc("c", "n", A)
    for fence, target in (
        (Fence("u", -1), 1),
        (Fence("u", 2**63), 1),
        (Fence("u", 1), -1),
        (Fence("u", 1), 2**40),
    ):
        with pytest.raises(BadRequest):
            await dnc.set_secondary("c", nc.id, fence, target, [])
    assert (await dnc.set_secondary("c", nc.id, Fence("u", 0), 0, ["", "\x00"])).nc.primary == nc.primary


async def test_ipv6_larger_than_any_integer_of_a_database(dnc: SqlAllocator) -> None:
    key = SubnetKey("vnet", "six", 6)
    capacity = (await dnc.ensure_subnet(Declaration(key, "fd00::/8"))).capacity
    assert capacity == 2**120 - 2
    assert (await fill(dnc, key, target=2))[1:] == ["fd00::3", "fd00::4"]
    assert (await dnc.utilization(key)).free == capacity - 3
