"""NCs and their IPs: granted, let go, fenced, and shared out when there are too few."""

import pytest

from subnetes.dnc.errors import NCUnknown, StaleReading, SubnetFull, SubnetUnknown
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.types import NC, Declaration, Fence, SetResult, SubnetKey
from tests.dnc.conftest import Clock

A = SubnetKey("", "a", 4)


class World:
    """A cluster that asks; every call is based on a newer reading than the one before."""

    def __init__(self, dnc: SqlAllocator, cidr: str) -> None:
        self.dnc = dnc
        self.cidr = cidr
        self.reading = 0
        self.ncs: dict[str, NC] = {}

    async def node(self, name: str) -> NC:
        if self.cidr:
            await self.dnc.ensure_subnet(Declaration(A, self.cidr))
            self.cidr = ""
        self.ncs[name] = await self.dnc.ensure_nc("c", name, A)
        return self.ncs[name]

    async def ask(self, name: str, target: int, *released: str) -> SetResult:
        self.reading += 1
        result = await self.dnc.set_secondary(
            "c", self.ncs[name].id, Fence("u", self.reading), target, released
        )
        self.ncs[name] = result.nc
        return result

    async def let_go(self, name: str, count: int) -> int:
        """Both steps; how many were freed."""
        held = self.ncs[name].secondary
        await self.ask(name, len(held) - count, *(ip.id for ip in held[:count]))
        return await self.confirm(name)

    async def confirm(self, name: str) -> int:
        nc = self.ncs[name]
        freed = await self.dnc.confirm("c", nc.id, [ip.id for ip in nc.leaving])
        self.ncs[name] = await self.dnc.nc("c", nc.id)
        return freed

    def has(self, name: str) -> int:
        return len(self.ncs[name].secondary)


async def test_a_new_nc_has_a_primary_and_nothing_else(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    nc = await world.node("n")
    assert (nc.primary, nc.secondary, nc.version, nc.waiting) == ("10.0.0.2", (), 0, 0)
    assert await dnc.ensure_nc("c", "n", A) == nc == await dnc.nc("c", nc.id)
    assert (await dnc.utilization(A)).reserved == 1


async def test_an_undeclared_subnet_gives_nothing(dnc: SqlAllocator) -> None:
    with pytest.raises(SubnetUnknown, match="not declared"):
        await dnc.ensure_nc("c", "n", A)


async def test_the_version_grows_with_each_change_of_the_ips_and_only_then(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    await world.node("n")
    assert (await world.ask("n", 16)).nc.version == 1
    assert (await world.ask("n", 16)).nc.version == 1
    assert (await world.ask("n", 4)).nc.version == 1
    assert world.has("n") == 16  # nothing is taken that was not released
    held = world.ncs["n"].secondary
    assert (await world.ask("n", 4, *(ip.id for ip in held[:12]))).nc.version == 2
    await world.confirm("n")
    assert world.ncs["n"].version == 2  # they had left already


async def test_a_repeated_call_changes_nothing(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    nc = await world.node("n")
    first = await dnc.set_secondary("c", nc.id, Fence("u", 5), 16, [])
    again = await dnc.set_secondary("c", nc.id, Fence("u", 5), 16, [])
    assert first == again
    ids = [ip.id for ip in first.nc.secondary[:4]]
    left = await dnc.set_secondary("c", nc.id, Fence("u", 6), 12, ids)
    assert (left.nc.leaving, left.refused) == (first.nc.secondary[:4], ())
    assert await dnc.set_secondary("c", nc.id, Fence("u", 6), 12, ids) == left
    assert [await dnc.confirm("c", nc.id, ids) for _ in range(2)] == [4, 0]
    freed = await dnc.set_secondary("c", nc.id, Fence("u", 6), 12, ids)
    assert (freed.nc.secondary, freed.nc.leaving, freed.nc.version) == (left.nc.secondary, (), 2)


async def test_what_is_released_is_reserved_until_it_is_confirmed(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/29")  # 5 addresses
    await world.node("n"), await world.node("m")
    await world.ask("n", 3)
    one, two, three = world.ncs["n"].secondary
    nc = (await world.ask("n", 0, one.id, two.id)).nc
    assert (nc.secondary, nc.leaving) == ((three,), (one, two))
    usage = await dnc.utilization(A)
    assert (usage.reserved, usage.free) == (5, 0)
    assert (await world.ask("m", 2)).nc.secondary == ()
    assert (await world.ask("n", 3)).nc.secondary == (three,)  # nor does it get them back
    await world.ask("n", 1)
    for cluster, nc_id in (("other", nc.id), ("c", world.ncs["m"].id), ("c", "unknown")):
        assert await dnc.confirm(cluster, nc_id, [one.id, two.id]) == 0
    assert await dnc.confirm("c", nc.id, [one.id, three.id, "unknown", "", "\0"]) == 1
    nc = await dnc.nc("c", nc.id)
    assert (nc.secondary, nc.leaving) == ((three,), (two,))
    got = (await world.ask("m", 2)).nc
    assert [ip.address for ip in got.secondary] == [one.address]
    assert await dnc.delete_nc("c", nc.id) == 3
    assert (await world.ask("m", 2)).nc.waiting == 0


async def test_an_older_reading_is_refused_and_changes_nothing(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    nc = await world.node("n")
    now = (await dnc.set_secondary("c", nc.id, Fence("u", 7), 8, [])).nc
    with pytest.raises(StaleReading, match="6 is older than 7"):
        await dnc.set_secondary("c", nc.id, Fence("u", 6), 200, [now.secondary[0].id])
    with pytest.raises(StaleReading):  # the NNC of an earlier life, read by a leader that was asleep
        await dnc.set_secondary("c", nc.id, Fence("earlier", 3), 0, [])
    assert await dnc.nc("c", nc.id) == now


async def test_another_ncs_ids_are_refused_and_unknown_ones_ignored(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    await world.node("n"), await world.node("m")
    await world.ask("n", 4), await world.ask("m", 4)
    theirs = world.ncs["m"].secondary[0].id
    result = await world.ask("n", 3, theirs, "unknown", world.ncs["n"].secondary[0].id, "")
    assert (len(result.nc.leaving), result.refused) == (1, (theirs,))
    assert await dnc.nc("c", world.ncs["m"].id) == world.ncs["m"]


async def test_a_freed_ip_rests_before_it_is_given_again_and_under_a_new_id(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/28")
    await world.node("n")
    await world.ask("n", 4)
    old = world.ncs["n"].secondary[0]
    await world.let_go("n", 1)
    await world.ask("n", 4)
    assert old.address not in {ip.address for ip in world.ncs["n"].secondary}
    await world.ask("n", 12)
    again = {ip.address: ip.id for ip in world.ncs["n"].secondary}
    assert again[old.address] != old.id


async def test_a_grant_may_be_partial(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/28")
    await world.node("n")
    nc = (await world.ask("n", 16)).nc
    assert (len(nc.secondary), nc.waiting, nc.target) == (12, 4, 16)
    (waiter,) = await dnc.waiting(A)
    assert (waiter.nc, waiter.wants) == (nc.id, 4)
    assert (await world.ask("n", 12)).nc.waiting == 0
    assert await dnc.waiting(A) == []


async def test_freed_ips_go_to_the_oldest_request_first(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/28")
    for name in ("greedy", "old", "young"):
        await world.node(name)
    await world.ask("greedy", 10)
    await world.ask("old", 3), await world.ask("young", 3)
    await world.let_go("greedy", 4)
    assert [waiter.node for waiter in await dnc.waiting(A)] == ["old", "young"]
    await world.ask("young", 3)
    await world.ask("greedy", 10)  # who just let go stands at the end of the queue
    assert (world.has("young"), world.has("greedy")) == (1, 6)
    await world.ask("old", 3)
    assert world.has("old") == 3
    assert (await dnc.utilization(A)).free == 0


async def test_primaries_go_before_secondary_ips(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/29")
    await world.node("n")
    await world.ask("n", 9)
    for _ in range(2):
        with pytest.raises(SubnetFull, match="no address left for the primary of node late"):
            await world.node("late")
    assert [(waiter.node, waiter.wants) for waiter in await dnc.waiting(A)] == [("late", 1), ("n", 5)]
    await world.let_go("n", 1)
    await world.ask("n", 9)
    assert world.has("n") == 3
    await world.node("late")
    assert [waiter.node for waiter in await dnc.waiting(A)] == ["n"]


async def test_nothing_is_kept_back_for_who_no_longer_asks(dnc: SqlAllocator, clock: Clock) -> None:
    world = World(dnc, "10.0.0.0/29")
    await world.node("n")
    await world.ask("n", 4)
    with pytest.raises(SubnetFull):
        await world.node("dead")
    held = world.ncs["n"].secondary
    await world.ask("n", 3, held[0].id)
    await world.confirm("n")
    clock.now += 119
    assert (await world.ask("n", 4)).nc.waiting == 1
    clock.now += 2
    assert (await world.ask("n", 4)).nc.waiting == 0


async def test_a_node_that_is_gone_waits_no_longer(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/29")
    await world.node("n")
    await world.ask("n", 4)
    with pytest.raises(SubnetFull):
        await world.node("gone")
    for _ in range(2):
        await dnc.release_wait("c", "gone", A)
    assert await dnc.waiting(A) == []


async def test_deleting_an_nc_frees_all_of_it_once(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/28")
    nc = await world.node("n")
    await world.ask("n", 30)
    assert await dnc.delete_nc("other", nc.id) == 0
    assert [await dnc.delete_nc("c", nc.id), await dnc.delete_nc("c", nc.id)] == [13, 0]
    assert (await dnc.utilization(A)).reserved == 0
    assert await dnc.waiting(A) == []
    with pytest.raises(NCUnknown):
        await world.ask("n", 1)


async def test_a_cluster_sees_and_changes_only_its_own_ncs(dnc: SqlAllocator) -> None:
    world = World(dnc, "10.0.0.0/24")
    mine = await world.node("n")
    theirs = await dnc.ensure_nc("other", "n", A)
    assert mine.id != theirs.id
    assert mine.primary != theirs.primary
    assert [nc.id for nc in await dnc.ncs("c")] == [mine.id]
    assert await dnc.ncs("other", "n") == [theirs]
    with pytest.raises(NCUnknown):
        await dnc.set_secondary("c", theirs.id, Fence("u", 9), 3, [])
    with pytest.raises(NCUnknown):
        await dnc.nc("c", theirs.id)
