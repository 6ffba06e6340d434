"""ClusterSubnets: bad declarations, scalers, exhaustion, deletion."""

from typing import Any

import msgspec
import pytest

from subnetes.api import names
from subnetes.api.clustersubnet import Scaler, ScalerOverride, Thresholds
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.errors import NotFound
from subnetes.kube.patches import MergePatch
from tests.controllers.world import NAMESPACE, World, condition, foreign, ids, planted


async def test_a_good_subnet_is_declared(world: World) -> None:
    replica = await world.replica()
    await world.subnet(exclude=["10.1.0.16/28", "10.1.0.9"])
    await replica.settle()
    subnet = await world.get_subnet()
    assert subnet.status is not None
    assert (subnet.status.capacity, subnet.status.reserved, subnet.status.exhausted) == (236, 0, False)
    assert subnet.status.scaler == Scaler(batch=16, buffer=0.5)
    assert condition(subnet, "Ready") == ("True", "Declared")
    assert condition(subnet, "ScalerAccepted") == ("True", "Accepted")
    assert subnet.metadata.finalizers == [names.SUBNET_FINALIZER]
    assert replica.api.writes["status ClusterSubnet"] == 1


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({"space": "10.1.0.0/24", "gateway": ["10.9.0.1"]}, "Invalid", "10.9.0.1"),
        ({"space": "10.1.0.0/24", "exclude": ["10.1.0.0/24"]}, "Invalid", ""),
        ({"space": "10.1.0.0/24", "exclude": ["fd00::1"]}, "Invalid", "fd00::1"),
        ({"space": "10.1.0.9/24"}, "Invalid", "10.1.0.0/24"),
        ({"space": "10.7.0.128/25"}, "Overlaps", "good"),
    ],
)
async def test_a_bad_one_says_what_is_wrong_once_and_serves_nobody(
    world: World, spec: dict[str, Any], reason: str, said: str
) -> None:
    replica = await world.replica()
    await world.subnet("good", space="10.7.0.0/24", node_selector=None)
    await replica.settle()
    await world.subnet("bad", **spec)
    await world.node("a")
    await replica.settle()
    await replica.settle()
    subnet = await world.get_subnet("bad")
    assert condition(subnet, "Ready") == ("False", reason)
    (event,) = [each for each in replica.told.events if each[1] == "bad"]
    assert event[0] == reason
    assert said in event[2]
    assert (await world.nc("a")).subnet_name == "good"


async def test_a_change_that_would_lose_ips_is_refused_and_growing_works(world: World) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28")
    await world.node("a")
    await replica.settle()
    await world.ask("a", 20)
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 12
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/29"]})
    await replica.settle()
    assert condition(await world.get_subnet(), "Ready") == ("False", "InUse")
    assert (await world.nc("a")).secondary_ip_count == 12, "nothing is lost"
    replica.woken.clear()
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/24"]})
    await replica.settle()
    assert "a" in replica.woken, "who waited is served at once"
    assert condition(await world.get_subnet(), "Ready") == ("True", "Declared")
    assert (await world.nc("a")).secondary_ip_count == 20


async def test_an_override_rules_field_by_field_and_its_removal_brings_the_defaults_back(
    world: World,
) -> None:
    replica = await world.replica()
    await world.subnet(scaler=ScalerOverride(batch=8))
    await world.node("a")
    await replica.settle()
    assert (await scaler(world), await annotated(world, "a")) == (Scaler(batch=8, buffer=0.5), (8, 50))
    await world.change_subnet("pods", {"scaler": {"batch": None, "buffer": 1.25}})
    await replica.settle()
    assert (await scaler(world), await annotated(world, "a")) == (Scaler(batch=16, buffer=1.25), (16, 125))
    await world.change_subnet("pods", {"scaler": None})
    await replica.settle()
    assert (await scaler(world), await annotated(world, "a")) == (Scaler(batch=16, buffer=0.5), (16, 50))
    writes = replica.api.writes.copy()
    await replica.settle()
    assert replica.api.writes == writes, "no loop"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (ScalerOverride(batch=251), "250"),
        (ScalerOverride(batch=14), "13"),
        (ScalerOverride(buffer=10.5), "10.5"),
    ],
)
async def test_an_override_that_cannot_be_is_refused_visibly_and_changes_nothing(
    world: World, override: ScalerOverride, said: str
) -> None:
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28", scaler=ScalerOverride(batch=4))
    await replica.settle()
    document = {"batch": override.batch, "buffer": override.buffer}
    await world.change_subnet("pods", {"scaler": document})
    await replica.settle()
    await replica.settle()
    assert await scaler(world) == Scaler(batch=4, buffer=0.5)
    assert condition(await world.get_subnet(), "ScalerAccepted") == ("False", "InvalidOverride")
    assert condition(await world.get_subnet(), "Ready") == ("True", "Declared")
    (event,) = replica.told.events
    assert event[0] == "InvalidOverride"
    assert said in event[2]


async def scaler(world: World) -> Scaler | None:
    status = (await world.get_subnet()).status
    return status.scaler if status else None


async def annotated(world: World, node: str) -> tuple[int, int]:
    text = ((await world.get(node)).metadata.annotations or {})[names.SCALER]
    found = msgspec.json.decode(text)
    return found["batchSize"], found["requestThresholdPercent"]


async def test_scalers_of_old_are_imported_once_and_come_back_after_an_override(world: World) -> None:
    texts = {"a": (10, 30), "b": (10, 30), "c": (12, 30), "d": (99, -1)}
    for number, (node, (batch, percent)) in enumerate(texts.items()):
        await planted(world, node, foreign(f"nc-{node}", f"10.1.0.{10 + number}"))
        text = f'{{"batchSize":{batch},"requestThresholdPercent":{percent}}}'
        note = MergePatch({"metadata": {"annotations": {names.SCALER: text}}})
        await world.client.patch(NodeNetworkConfig, node, note, NAMESPACE)
    await world.subnet()
    replica = await world.replica()
    await replica.settle()
    assert await scaler(world) == Scaler(batch=10, buffer=0.3)
    assert await annotated(world, "c") == (10, 30), "from now on one way"
    await world.change_subnet("pods", {"scaler": {"batch": 5}})
    await replica.settle()
    assert (await scaler(world), await annotated(world, "a")) == (Scaler(batch=5, buffer=0.3), (5, 30))
    await world.change_subnet("pods", {"scaler": None})
    await replica.settle()
    assert await scaler(world) == Scaler(batch=10, buffer=0.3)


async def test_exhaustion_is_said_at_once_and_ends_by_what_nodes_would_hold(world: World) -> None:
    replica = await world.replica()
    await world.subnet(
        space="10.1.0.0/26", thresholds=Thresholds(upper=0.5, lower=0.4), scaler=ScalerOverride(batch=8)
    )  # 61 addresses: exhausted above 30, recovered below a projection of 24.4
    for name in "ab":
        await world.node(name)
    await replica.settle()
    await world.ask("a", 15)
    await world.ask("b", 15)
    await replica.settle()
    assert await exhausted(world) is True
    assert replica.told.count("Exhausted") == 1
    nc = await world.nc("a")
    await world.ask("a", 5, ids(nc)[:10])
    await replica.settle()
    assert await exhausted(world) is True, "22 are reserved, but 16 + 24 would be"
    nc = await world.nc("b")
    await world.ask("b", 5, ids(nc)[:10])
    await replica.settle()
    assert await exhausted(world) is True, "12 are reserved, but 16 + 16 would be"
    nc = await world.nc("a")
    await world.ask("a", 2, ids(nc)[:3])
    await replica.settle()
    assert await exhausted(world) is False
    assert replica.told.count("Recovered") == 1


async def exhausted(world: World) -> bool | None:
    status = (await world.get_subnet()).status
    return status.exhausted if status else None


async def test_figures_alone_are_written_at_most_every_30_seconds(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.node("a")
    await replica.settle()
    before = replica.api.writes["status ClusterSubnet"]
    for count in (5, 10, 15):
        await world.ask("a", count)
        await replica.settle()
    assert replica.api.writes["status ClusterSubnet"] == before
    wait = await replica.subnet("pods")
    assert wait is not None
    assert 0 < (wait.requeue_after or 0) <= 30
    world.clock.ahead = 31
    await replica.settle()
    status = (await world.get_subnet()).status
    assert status is not None
    assert status.reserved == 16
    assert replica.api.writes["status ClusterSubnet"] == before + 1


async def test_a_deleted_subnet_drains_and_says_who_still_holds(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.node("a")
    await replica.settle()
    await world.ask("a", 3)
    await replica.settle()
    nc = await world.nc("a")
    await world.client.delete(type(await world.get_subnet()), "pods", NAMESPACE)
    await replica.settle()
    subnet = await world.get_subnet()
    assert condition(subnet, "Ready") == ("False", "InUse")
    assert "a" in next(event[2] for event in replica.told.events if event[0] == "InUse")
    assert ((await world.get("a")).metadata.annotations or {})[names.DRAINING] == nc.id
    await world.ask("a", 0, ids(nc))
    await replica.settle()
    with pytest.raises(NotFound):
        await world.get_subnet()
    status = (await world.get("a")).status
    assert status is not None
    assert status.network_containers == []
    assert await replica.allocator.subnets() == []


async def test_a_subnet_without_addresses_says_so(world: World) -> None:
    replica = await world.replica()
    subnet = await world.subnet()
    bare = type(subnet)(metadata=ObjectMeta(name="bare", namespace=NAMESPACE))
    await world.client.create(bare)
    await replica.settle()
    assert condition(await world.get_subnet("bare"), "Ready") == ("False", "Invalid")


async def test_a_family_taken_out_of_the_spec_drains_and_goes(world: World) -> None:
    replica = await world.replica()
    await world.subnet()
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/24", "fd00::/64"]})
    await world.node("a")
    await replica.settle()
    assert len(await replica.allocator.subnets()) == 2
    await world.change_subnet("pods", {"addressSpace": ["10.1.0.0/24"]})
    await replica.settle()
    await replica.settle()
    assert (await world.nc("a")).subnet_address_space == "10.1.0.0/24"
    assert [each.key.family for each in await replica.allocator.subnets()] == [4]
