"""A ClusterSubnet is edited: every node hears of it, a refused edit changes nothing, an heir knows both."""

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.meta import ObjectMeta
from subnetes.controllers.term import Wakes
from tests.controllers.world import NAMESPACE, Replica, World, condition, foreign, ids, planted


async def served(world: World, *nodes: str, space: str = "10.1.0.0/24") -> Replica:
    await world.subnet(space=space)
    replica = await world.replica()
    for name in nodes:
        await world.node(name)
    await replica.settle()
    return replica


async def woken_after(replica: Replica, subnet: str) -> list[str]:
    replica.woken.clear()
    await replica.refresh()
    await replica.subnet(subnet)
    return sorted(replica.woken)


async def test_a_new_gateway_reaches_nodes_that_ask_for_nothing(world: World) -> None:
    replica = await served(world, "a", "b")
    await world.change_subnet("pods", {"gateway": ["10.1.0.254"]})
    assert await woken_after(replica, "pods") == ["a", "b"]
    await replica.settle()
    assert {(await world.nc(name)).default_gateway for name in "ab"} == {"10.1.0.254"}


async def test_an_heir_takes_what_a_grown_subnet_gave_also_if_some_nodes_do_not_show_that_it_grew(
    world: World,
) -> None:
    old = await served(world, "a", "b", space="10.1.0.0/28")
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/24"]})
    await old.refresh()
    await old.subnet("pods")  # and a is not looked at any more
    await world.ask("b", 60)
    await old.refresh()
    await old.nnc("b")
    assert (await world.nc("a")).subnet_address_space == "10.1.0.0/28"
    heir = await world.replica()
    assert heir.reconcilers.adoption.conflicts == {}
    await world.node("c")
    await heir.settle()
    await world.ask("c", 60)
    await heir.settle()
    shown = await world.addresses()
    assert (len(shown), len(set(shown))) == (123, 123)


async def test_a_refused_edit_changes_nothing_also_for_an_heir(world: World) -> None:
    old = await served(world, "a")
    await world.ask("a", 20)
    await old.settle()
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/28"]})
    await old.settle()
    heir = await world.replica()
    await world.ask("a", 30)
    await heir.settle()
    assert condition(await world.get_subnet(), "Ready") == ("False", "InUse")
    assert len(ids(await world.nc("a"))) == 30
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/25"]})
    await heir.settle()
    assert condition(await world.get_subnet(), "Ready") == ("True", "Declared")
    assert (await world.nc("a")).subnet_address_space == "10.1.0.0/25"


async def test_a_family_that_is_refused_does_not_have_its_subnet_looked_at_for_ever(world: World) -> None:
    replica = await world.replica()
    await world.subnet("six", "fd00::/64")
    await replica.settle()
    spaces = ["10.2.0.0/24", "fd00::/64"]
    metadata = ObjectMeta(name="dual", namespace=NAMESPACE)
    await world.client.create(ClusterSubnet(metadata=metadata, spec=ClusterSubnetSpec(address_space=spaces)))
    await replica.settle()
    assert condition(await world.get_subnet("dual"), "Ready") == ("False", "Overlaps")
    looked_at: list[str] = []
    replica.reconcilers.subnet._acceptance._waiters._wakes = Wakes(replica.woken.append, looked_at.append)
    assert await woken_after(replica, "dual") == []
    assert looked_at == [], "nothing changed: each look would lead to the next one"


async def test_what_changes_with_every_node_that_lets_go_is_not_written_every_time(world: World) -> None:
    nodes = [f"n{number}" for number in range(6)]
    replica = await served(world, *nodes)
    for name in nodes:
        await world.ask(name, 1)
    await replica.settle()
    await world.client.delete(ClusterSubnet, "pods", NAMESPACE)
    await replica.settle()
    writes, told = replica.api.writes["status ClusterSubnet"], replica.told.count("InUse", "pods")
    for name in nodes[:3]:
        await world.ask(name, 0, ids(await world.nc(name)))
        await replica.settle()
    assert replica.api.writes["status ClusterSubnet"] == writes
    assert replica.told.count("InUse", "pods") == told == 1
    world.clock.ahead += 31
    await replica.settle()
    assert replica.api.writes["status ClusterSubnet"] == writes + 1


async def test_what_was_shown_without_an_id_is_nobody_elses(world: World) -> None:
    await planted(world, "a", foreign("", "10.1.0.2", ("", "10.1.0.3")))
    await planted(world, "b", foreign("nc-b", "10.1.0.4", ("", "10.1.0.5"), ("", "10.1.0.6")))
    replica = await served(world, "c")
    await world.ask("c", 20)
    await replica.settle()
    shown = await world.addresses()
    assert {"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"} < set(shown)
    assert len(shown) == len(set(shown))
    heir = await world.replica()
    await heir.settle()
    assert sorted(await world.addresses()) == sorted(shown)


async def test_an_nnc_that_is_found_late_is_taken_into_the_network_of_its_subnet(world: World) -> None:
    replica = await world.replica()
    await world.subnet(network_id="vnet-1")
    await replica.settle()
    await planted(world, "a", foreign("nc-a", "10.1.0.2", ("x", "10.1.0.3")))
    await world.node("b")
    await replica.settle()
    await world.ask("b", 20)
    await replica.settle()
    shown = await world.addresses()
    assert len(shown) == len(set(shown)) == 23
