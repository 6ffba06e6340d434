"""A node joins, asks, is granted, waits and lets go."""

import pytest

from subnetes.api import names
from subnetes.api.core import Node, Pod
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.status import containers_of
from subnetes.dnc.types import SubnetKey
from subnetes.kube.errors import Conflict
from subnetes.kube.patches import MergePatch
from tests.controllers.world import NAMESPACE, Killed, World, ids


async def test_a_new_node_gets_an_nnc_with_a_primary_and_no_secondary_ips(world: World) -> None:
    replica = await world.replica()
    await world.subnet(network_id="vnet-1")
    await world.node("a", annotations={names.MAX_IPS: "100"})
    await replica.settle()
    nnc, nc = await world.get("a"), await world.nc("a")
    assert nnc.metadata.finalizers == [names.RELEASE_FINALIZER]
    (owner,) = nnc.metadata.owner_references or []
    assert (owner.kind, owner.name, owner.controller) == ("Node", "a", True)
    assert (nc.node_ip, nc.subnet_name, nc.vnet_id) == ("192.0.2.7", "pods", "vnet-1")
    assert (nc.default_gateway, nc.subnet_address_space) == ("10.1.0.1", "10.1.0.0/24")
    assert (nc.type, nc.assignment_mode, nc.status) == ("vnet", "dynamic", "NCUpdateSuccess")
    assert nc.primary_ip.startswith("10.1.0.")
    assert (nc.secondary_ip_count, nc.secondary_ips) == (0, [])
    assert nnc.status is not None
    assert nnc.status.status == "Updated"


async def test_the_scaler_is_on_the_nnc_from_its_creation(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    await world.node("a", annotations={names.MAX_IPS: "100"})
    await replica.settle()
    expected = '{"batchSize":16,"maxIPCount":100,"releaseThresholdPercent":150,"requestThresholdPercent":50}'
    assert (await world.get("a")).metadata.annotations == {
        names.GRANTER: replica.reconcilers.term.identity,
        names.SCALER: expected,
    }
    assert replica.api.writes["patch NodeNetworkConfig"] == 0


async def test_a_grant_is_exactly_one_status_write(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    await world.node("a")
    await replica.settle()
    before = replica.api.writes.copy()
    assert before["status NodeNetworkConfig"] == 1
    await world.ask("a", 15)
    await replica.settle()
    nc = await world.nc("a")
    assert (nc.secondary_ip_count, len(set(ids(nc)))) == (15, 15)
    made = replica.api.writes - before
    assert {what: count for what, count in made.items() if "NodeNetworkConfig" in what} == {
        "status NodeNetworkConfig": 1
    }


async def test_a_node_without_a_subnet_waits_for_one_without_a_word(world: World) -> None:
    replica = await world.replica()
    await world.node("a")
    await replica.settle()
    assert (await world.get("a")).status is None
    await world.subnet()
    await replica.settle()
    assert (await world.nc("a")).primary_ip


async def test_what_is_released_is_freed_and_nothing_else(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.node("a")
    await replica.settle()
    await world.ask("a", 4)
    await replica.settle()
    nc = await world.nc("a")
    one, *others = ids(nc)
    await world.ask("a", 1, [one, "7a3c"])  # lowering the count takes nothing that is not listed
    await replica.settle()
    after = await world.nc("a")
    assert ids(after) == others
    assert (after.version or 0) > (nc.version or 0)
    assert replica.told.events == []


async def test_partial_grants_say_so_once_and_freed_ips_go_to_the_oldest(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28")  # 13 addresses beside network, broadcast and gateway
    for name in "abc":
        await world.node(name)
    await replica.settle()
    await world.ask("a", 6)
    await replica.settle()
    for name in ("b", "c"):  # 4 are left
        await world.ask(name, 6)
        await replica.refresh()
        await replica.nnc(name)
    b, c = await world.nc("b"), await world.nc("c")
    assert (b.secondary_ip_count, b.status) == (4, "NCUpdateSubnetFullError")
    assert (c.secondary_ip_count, c.status) == (0, "NCUpdateSubnetFullError")
    status = (await world.get("b")).status
    assert status is not None
    assert status.status == "Error"
    writes = replica.api.writes.copy()
    await replica.settle()
    assert replica.api.writes["status NodeNetworkConfig"] == writes["status NodeNetworkConfig"]
    assert (replica.told.count("SubnetFull", "b"), replica.told.count("SubnetFull", "c")) == (1, 1)
    assert replica.wants["b"] is not None, "who waits is looked at again"
    replica.woken.clear()
    await world.ask("a", 3, ids(await world.nc("a"))[:3])
    await replica.refresh()
    await replica.nnc("a")
    assert replica.woken == ["b", "c"]
    await replica.nnc("c")  # out of order: what b waits for is kept for it
    await replica.nnc("b")
    await replica.settle()
    assert (await world.nc("b")).secondary_ip_count == 6
    assert (await world.nc("c")).secondary_ip_count == 1
    assert (await world.nc("b")).status == "NCUpdateSuccess"


async def test_without_a_primary_left_the_nnc_says_so_and_heals(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/29")  # 5 addresses
    await world.node("a")
    await replica.settle()
    await world.ask("a", 4)
    await replica.settle()
    await world.node("b")
    await replica.settle()
    await replica.settle()
    status = (await world.get("b")).status
    assert status is not None
    assert (status.status, status.network_containers) == ("Error", [])
    assert replica.told.count("SubnetFull", "b") == 1
    replica.woken.clear()
    await world.ask("a", 3, ids(await world.nc("a"))[:1])
    await replica.settle()
    assert "b" in replica.woken
    assert (await world.nc("b")).primary_ip


async def test_strange_requests_are_said_once_and_change_nothing(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    for name in "ab":
        await world.node(name, annotations={names.MAX_IPS: "10"})
    await replica.settle()
    await world.ask("b", 3)
    await replica.settle()
    stolen = ids(await world.nc("b"))[0]
    nc = await world.nc("a")
    await world.ask_raw("a", {nc.id: 12, "no-such-nc": 5}, [stolen])
    await replica.settle()
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 10, "at most the node's maximum"
    assert stolen in ids(await world.nc("b"))
    for reason in ("UnknownNetworkContainer", "ReleaseRefused", "AboveMaximum"):
        assert replica.told.count(reason, "a") == 1, replica.told.events


async def test_what_a_live_pod_has_is_not_freed_before_it_ends(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.node("a")
    await replica.settle()
    await world.ask("a", 3)
    await replica.settle()
    first, second, third = (await world.nc("a")).secondary_ips or []
    await world.pod("runs", "a", first.address, "Running")
    await world.pod("done", "a", second.address, "Succeeded")
    await world.ask("a", 0, [first.id, second.id, third.id])
    await replica.settle()
    assert ids(await world.nc("a")) == [first.id]
    assert replica.told.count("ReleaseRefused", "a") == 1
    await world.client.delete(Pod, "runs", "default", grace_seconds=0)
    await replica.settle()
    assert ids(await world.nc("a")) == []


async def test_a_write_that_lost_a_race_is_repeated_with_the_same_ips(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.node("a")
    await replica.settle()
    await world.ask("a", 5)
    await replica.refresh()
    await world.client.patch(
        NodeNetworkConfig, "a", MergePatch({"metadata": {"labels": {"x": "y"}}}), NAMESPACE
    )
    with pytest.raises(Conflict):
        await replica.nnc("a")
    (granted,) = await replica.allocator.ncs("local", "a")
    await replica.settle()
    assert ids(await world.nc("a")) == [ip.id for ip in granted.secondary]


async def test_dual_stack_is_one_nc_a_family_and_releases_find_theirs(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="fd00:1::/64", gateway=["fd00:1::1"])
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/24", "fd00:1::/64"]})
    await world.node("a")
    await replica.settle()
    four, six = containers_of(await world.get("a"))
    assert (four.subnet_address_space, six.subnet_address_space) == ("10.1.0.0/24", "fd00:1::/64")
    await world.ask_raw("a", {four.id: 2, six.id: 2})
    await replica.settle()
    four, six = containers_of(await world.get("a"))
    await world.ask_raw("a", {four.id: 1, six.id: 1}, [ids(four)[0], ids(six)[0]])
    await replica.settle()
    four_after, six_after = containers_of(await world.get("a"))
    assert (ids(four_after), ids(six_after)) == (ids(four)[1:], ids(six)[1:])
    assert replica.told.events == []


async def test_a_node_that_leaves_its_subnet_drains(world: World) -> None:
    replica = await world.replica()
    await world.subnet("old", node_selector=None)
    await world.node("a", labels={"zone": "1"})
    await replica.settle()
    await world.ask("a", 2)
    await replica.settle()
    old = await world.nc("a")
    await world.subnet("new", space="10.2.0.0/24")
    await world.change_subnet("old", {"nodeSelector": {"matchLabels": {"zone": "2"}}})
    await replica.settle()
    nnc = await world.get("a")
    assert [each.subnet_name for each in containers_of(nnc)] == ["new", "old"]
    assert (nnc.metadata.annotations or {})[names.DRAINING] == old.id
    await world.ask_raw("a", {old.id: 0}, ids(old))
    await replica.settle()
    nnc = await world.get("a")
    assert [each.subnet_name for each in containers_of(nnc)] == ["new"]
    assert names.DRAINING not in (nnc.metadata.annotations or {})
    assert [nc.subnet.name for nc in await replica.allocator.ncs("local", "a")] == ["new"]
    assert replica.told.count("UnknownNetworkContainer") == 0, "the agent could not know yet"


async def test_a_released_ip_is_nobodys_until_its_status_shows_it_no_longer(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28")  # 13 addresses
    for name in "ab":
        await world.node(name)
    await replica.settle()
    await world.ask("a", 11)
    await replica.settle()
    await world.ask("b", 3)
    await replica.settle()
    await world.ask("a", 8, ids(await world.nc("a"))[:3])
    await replica.refresh()
    replica.woken.clear()
    replica.api.dies_after = 0
    with pytest.raises(Killed):
        await replica.nnc("a")  # DNC has heard of it, etcd has not
    replica.api.dies_after = None
    assert replica.woken == []
    await replica.nnc("b")
    shown = await world.addresses()
    assert len(shown) == len(set(shown))
    await replica.refresh()
    await replica.nnc("a")
    assert replica.woken == ["b"]
    await replica.settle()
    assert (await world.nc("b")).secondary_ip_count == 3
    shown = await world.addresses()
    assert (len(shown), len(set(shown))) == (13, 13)


async def test_a_confirmation_that_was_lost_is_made_up_for_at_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/29")  # 5 addresses
    for name in "ab":
        await world.node(name)
    await replica.settle()
    await world.ask("a", 3)
    await replica.settle()
    await world.ask("b", 1)
    await replica.settle()
    await world.ask("a", 2, ids(await world.nc("a"))[:1])
    await replica.refresh()
    replica.woken.clear()

    async def lost(*_: object) -> int:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(replica.allocator, "confirm", lost)
        with pytest.raises(Killed):
            await replica.nnc("a")  # etcd has heard of it, DNC has not
    assert (await world.nc("a")).secondary_ip_count == 2
    assert replica.woken == []
    await replica.refresh()
    await replica.nnc("a")
    assert replica.woken == ["b"]
    assert [nc.leaving for nc in await replica.allocator.ncs("local")] == [(), ()]
    await replica.nnc("b")
    assert (await world.nc("b")).secondary_ip_count == 1


async def test_who_asks_for_less_than_it_waited_for_lets_the_next_one_have_it(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28")
    for name in "abc":
        await world.node(name)
    await replica.settle()
    for name, count in (("a", 10), ("b", 8), ("c", 3)):
        await world.ask(name, count)
        await replica.settle()
    await world.ask("a", 5, ids(await world.nc("a"))[:5])
    await replica.refresh()
    replica.woken.clear()
    await replica.nnc("a")
    assert replica.woken == ["b"]
    await world.ask("b", 0)  # it needs none of them any more
    await replica.refresh()
    await replica.nnc("b")
    assert replica.woken == ["b", "c"]
    await replica.nnc("c")
    assert (await world.nc("c")).secondary_ip_count == 3


async def test_a_node_that_need_not_draw_from_a_full_subnet_keeps_nothing_back_there(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/29")
    await world.node("a")
    await replica.settle()
    await world.ask("a", 4)
    await replica.settle()
    await world.node("b")
    await replica.settle()
    await world.ask("a", 9)
    await replica.settle()
    pods = SubnetKey("", "pods", 4)
    assert [each.node for each in await replica.allocator.waiting(pods)] == ["b", "a"]
    await world.client.patch(Node, "a", MergePatch({"metadata": {"labels": {"zone": "1"}}}))
    await world.change_subnet("pods", {"nodeSelector": {"matchLabels": {"zone": "1"}}})
    await replica.settle()
    assert [each.node for each in await replica.allocator.waiting(pods)] == ["a"]
