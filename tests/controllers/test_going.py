"""A node goes, for good or for a while; also when the controller is down or dies on the way."""

from contextlib import suppress
from typing import Any

import pytest

from subnetes.api import names
from subnetes.api.core import ConfigMap, Node
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.controllers.process import in_memory
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.types import SubnetKey
from subnetes.kube.patches import MergePatch
from tests.controllers.world import NAMESPACE, Killed, Replica, World, ids

pytestmark = pytest.mark.slow

GRACE = 100.0
PODS = SubnetKey("", "pods", 4)


async def granted(world: World, replica: Replica, node: str = "a", count: int = 3) -> NetworkContainer:
    await world.node(node)
    await replica.settle()
    await world.ask(node, count)
    await replica.settle()
    return await world.nc(node)


async def stashes(world: World) -> list[str]:
    return [each.metadata.name for each in (await world.client.list(ConfigMap, NAMESPACE)).items]


async def test_ips_stay_reserved_for_the_grace_and_are_freed_after_it(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet(space="10.1.0.0/28")
    await granted(world, replica, "a", 10)
    await world.delete_node("a")
    await world.node("b")
    await replica.settle()
    await world.ask("b", 10)
    world.clock.ahead = GRACE - 5
    await replica.settle()
    assert (await world.nc("b")).secondary_ip_count == 1
    assert (await world.nc("a")).secondary_ip_count == 10, "nothing is taken from a node within the grace"
    wait = replica.wants["a"]
    assert wait is not None
    assert 0 < (wait.requeue_after or 0) <= 6
    world.clock.ahead = GRACE + 5
    replica.woken.clear()
    await replica.settle()
    assert "b" in replica.woken
    assert not await world.exists("a")
    assert (await world.nc("b")).secondary_ip_count == 10
    assert await replica.allocator.ncs("local", "a") == []


async def test_it_works_the_same_if_the_controller_was_down(world: World) -> None:
    first = await world.replica(GRACE)
    await world.subnet()
    await granted(world, first)
    await world.delete_node("a")
    world.clock.ahead = GRACE + 5
    second = await world.replica(GRACE)
    await second.settle()
    assert not await world.exists("a")
    assert await second.allocator.ncs("local") == []


async def test_an_nnc_that_nobody_collects_is_marked_by_us(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    await granted(world, replica)
    no_owner = MergePatch({"metadata": {"ownerReferences": None}})
    await world.client.patch(NodeNetworkConfig, "a", no_owner, NAMESPACE)
    await world.delete_node("a")
    await replica.refresh()
    await replica.nnc("a")
    assert (await world.get("a")).metadata.deletion_timestamp


async def test_a_going_node_is_granted_nothing_and_its_releases_are_taken(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    nc = await granted(world, replica)
    await world.delete_node("a")
    await replica.settle()
    await world.ask("a", 30, ids(nc)[:1])
    await replica.settle()
    assert ids(await world.nc("a")) == ids(nc)[1:]


async def test_a_node_that_is_back_in_time_has_its_nc_and_ids_back(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    nc, uid = await granted(world, replica), (await world.get("a")).metadata.uid
    await world.delete_node("a")
    await replica.settle()
    await world.node("a")
    await replica.settle()
    back = await world.nc("a")
    assert (back.id, ids(back), back.primary_ip) == (nc.id, ids(nc), nc.primary_ip)
    assert (await world.get("a")).metadata.uid != uid
    assert await stashes(world) == []
    assert replica.told.count("NodeReturned", "a") == 1
    assert not replica.reconcilers.departures.returning.has("a")


async def test_a_node_made_again_before_anybody_collects_keeps_its_nnc(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    nc = await granted(world, replica)
    made_for_another = MergePatch({"metadata": {"ownerReferences": None}})
    await world.client.patch(NodeNetworkConfig, "a", made_for_another, NAMESPACE)
    await world.delete_node("a")
    await world.node("a")
    await replica.settle()
    (owner,) = (await world.get("a")).metadata.owner_references or []
    assert owner.uid == (await world.client.get(Node, "a")).metadata.uid
    assert ids(await world.nc("a")) == ids(nc)


@pytest.mark.parametrize("step", range(8))
async def test_a_return_survives_a_crash_at_any_write(world: World, step: int) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    nc = await granted(world, replica)
    await world.node("other")
    await replica.settle()
    await world.delete_node("a")
    await replica.settle()
    await world.node("a")
    replica.api.dies_after = step
    try:
        await replica.settle()
    except Killed:
        assert step < 6
    heir = await world.replica(GRACE)
    await heir.refresh()
    await heir.nnc("other")
    await world.ask("other", 30)
    await heir.settle()
    back = await world.nc("a")
    assert (back.id, ids(back)) == (nc.id, ids(nc))
    shown = await world.addresses()
    assert len(shown) == len(set(shown))
    assert await stashes(world) == []
    assert heir.told.count("AddressConflict") == 0


@pytest.mark.parametrize("step", range(4))
async def test_an_end_that_fails_at_any_write_leaves_nothing_owned_twice(world: World, step: int) -> None:
    replica = await world.replica(GRACE)
    await world.subnet(space="10.1.0.0/28")
    await granted(world, replica, "a", 10)
    await world.node("b")
    await world.delete_node("a")
    await replica.settle()
    await world.ask("b", 11)
    world.clock.ahead = GRACE + 5
    await replica.refresh()
    replica.api.dies_after = step
    with suppress(Killed):
        await replica.nnc("a")
    replica.api.dies_after = None
    await replica.refresh()
    await replica.nnc("b")  # before a's end is tried again, and the last that this replica does
    heir = await world.replica(GRACE)
    assert heir.told.count("AddressConflict") == 0
    await heir.settle()
    assert not await world.exists("a")
    assert (await world.nc("b")).secondary_ip_count == 11


async def test_a_node_that_goes_again_while_it_returns_leaves_no_record_behind(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    await granted(world, replica)
    await world.delete_node("a")
    await replica.settle()
    await world.node("a")
    await replica.refresh()
    replica.api.dies_after = 1
    with pytest.raises(Killed):
        await replica.nnc("a")
    assert len(await stashes(world)) == 1
    replica.api.dies_after = None
    await world.delete_node("a")
    world.clock.ahead = GRACE + 5
    await replica.refresh()
    await replica.nnc("a")
    assert not await world.exists("a")
    assert await stashes(world) == [], "an heir would take it for what the node holds"


async def test_a_stashed_node_that_does_not_come_back_after_all_is_freed(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    await granted(world, replica)
    await world.delete_node("a")
    await replica.settle()
    await world.node("a")
    await replica.refresh()
    await replica.nnc("a")  # stashed, and its NNC gone
    assert not await world.exists("a")
    await world.delete_node("a")
    heir = await world.replica(GRACE, take_over=False)
    assert await heir.take_over() == {"a"}
    await heir.refresh()
    assert await heir.nnc("a") is not None
    assert len(await heir.allocator.ncs("local", "a")) == 1, "reserved for the grace"
    world.clock.ahead = GRACE + 5
    assert await heir.nnc("a") is None
    assert await heir.allocator.ncs("local", "a") == []
    assert await stashes(world) == []


async def test_an_nnc_deleted_by_hand_is_made_again_with_what_it_had(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet()
    nc = await granted(world, replica)
    await world.client.delete(NodeNetworkConfig, "a", NAMESPACE)
    await replica.settle()
    nnc = await world.get("a")
    assert nnc.metadata.finalizers == [names.RELEASE_FINALIZER]
    assert ids(await world.nc("a")) == ids(nc)


async def test_no_primary_is_kept_back_for_a_node_that_went_while_it_waited(world: World) -> None:
    replica = await world.replica(GRACE)
    await world.subnet(space="10.1.0.0/29")
    await granted(world, replica, "a", 4)
    await world.node("b")
    await replica.settle()
    await world.ask("a", 9)
    await replica.settle()
    assert [each.node for each in await replica.allocator.waiting(PODS)] == ["b", "a"]
    await world.delete_node("b")
    await replica.settle()
    assert [each.node for each in await replica.allocator.waiting(PODS)] == ["a"]


async def test_what_a_frozen_leader_is_about_to_free_is_not_given_back_to_the_node(world: World) -> None:
    shared = await in_memory()
    old = await world.replica(GRACE, allocator=shared)
    await world.subnet()
    nc = await granted(world, old)
    await world.delete_node("a")
    await old.settle()
    world.clock.ahead = GRACE + 5
    await old.refresh()
    old.api.dies_after = 1
    old.reconcilers.departures._allocator = Frozen(shared)
    with pytest.raises(Killed):
        await old.nnc("a")  # the status is emptied, and nothing freed yet
    await world.node("a")
    heir = await world.replica(GRACE, allocator=shared)
    await heir.settle()
    assert (await world.nc("a")).id != nc.id
    await shared.delete_nc("local", nc.id)  # it thaws
    reserved = {each.primary for each in await shared.ncs("local")}
    assert {(await world.nc("a")).primary_ip} == reserved
    await shared.close()


class Frozen:
    """A DNC that hears of no deletion: whoever calls is stopped right before."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._allocator, name)

    async def delete_nc(self, cluster: str, nc: str) -> int:
        raise Killed
