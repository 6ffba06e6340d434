"""Agents and control planes that only know v1alpha: what DNC-RC owes them.

They read and write through the conversion, so these tests do.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subnetes.api import names, nodenetworkconfig_v1alpha
from subnetes.api.clustersubnet import ClusterSubnet, Scaler, ScalerOverride, Thresholds
from subnetes.api.clustersubnetstate import ClusterSubnetState, ClusterSubnetStateStatus
from subnetes.api.conversion import convert
from subnetes.api.core import Node
from subnetes.api.crd import crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import ObjectMeta, OwnerReference
from subnetes.api.nodenetworkconfig import NodeNetworkConfig, NodeNetworkConfigSpec
from subnetes.controllers.status import containers_of
from subnetes.kube.codec import Change
from subnetes.kube.controller import Result
from subnetes.kube.errors import NotFound
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from tests.controllers.test_process import becomes, controllers
from tests.controllers.world import NAMESPACE, Replica, World, ids, new_world
from tests.harness.subnet_states import SUBNET_STATES
from tests.harness.webhook import ConversionWebhook, converting

Old = nodenetworkconfig_v1alpha.NodeNetworkConfig
OldSpec = nodenetworkconfig_v1alpha.NodeNetworkConfigSpec
OldStatus = nodenetworkconfig_v1alpha.NodeNetworkConfigStatus
OldContainer = nodenetworkconfig_v1alpha.NetworkContainer
OldScaler = nodenetworkconfig_v1alpha.Scaler


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Both versions of NodeNetworkConfig are served."""
    with ConversionWebhook(tmp_path, converting(convert)) as webhook:
        kinds = crds()
        spec = kinds[0]["spec"]
        spec["conversion"] = webhook.crd_conversion()
        spec["versions"] = [version | {"served": True} for version in spec["versions"]]
        async with new_world(kinds) as made:
            yield made


async def seen(world: World, node: str) -> Old:
    return await world.client.get(Old, node, NAMESPACE)


async def old_nnc(world: World, node: str, count: int, status: OldStatus | None = None) -> None:
    """As an older control plane makes it."""
    made = await world.client.create(
        Old(metadata=ObjectMeta(name=node, namespace=NAMESPACE), spec=OldSpec(requested_ip_count=count))
    )
    if status is not None:
        await world.client.update_status(msgspec.structs.replace(made, status=status))


async def old_write(world: World, node: str, count: int, released: list[str] | None = None) -> None:
    spec = {"requestedIPCount": count, "ipsNotInUse": released or []}
    await world.client.patch(Old, node, MergePatch({"spec": spec}), NAMESPACE)


# A request without a network container


async def test_a_count_from_before_the_first_nc_is_granted_with_it(world: World) -> None:
    await world.node("a")
    await old_nnc(world, "a", 12)
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    nnc = await world.get("a")
    assert nnc.spec is None or nnc.spec.secondary_ips is None, "spec is not ours"
    assert containers_of(nnc)[0].secondary_ip_count == 12
    old = await seen(world, "a")
    assert (old.spec or OldSpec()).requested_ip_count == 12
    assert (old.status or OldStatus()).assigned_ip_count == 12
    await old_write(world, "a", 14)
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 14


async def test_it_is_a_request_like_any_other(world: World) -> None:
    for name, count in (("a", 9), ("b", 99)):
        await world.node(name, annotations={names.MAX_IPS: "7"} if name == "a" else {})
        await old_nnc(world, name, count)
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/28")  # 13 addresses
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 7, "at most the node's maximum"
    assert (await world.nc("b")).status == "NCUpdateSubnetFullError"
    assert (await world.nc("b")).secondary_ip_count == 13 - 2 - 7
    assert replica.told.count("AboveMaximum", "a") == 1


async def test_what_the_spec_says_rules_over_what_is_carried_even_if_it_says_nothing(world: World) -> None:
    await world.node("a")
    note = {names.CONVERSION: '{"requestedIPCount":12}'}
    await world.client.create(
        NodeNetworkConfig(
            metadata=ObjectMeta(name="a", namespace=NAMESPACE, annotations=note),
            spec=NodeNetworkConfigSpec(secondary_ips={}),
        )
    )
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 0


async def moved(world: World, replica: Replica, old: str, new: str, space: str) -> None:
    """The node draws from another subnet from now on."""
    await world.change_subnet(old, {"nodeSelector": {"matchLabels": {"pool": "none"}}})
    await world.subnet(new, space)
    await replica.settle()


async def granted(world: World, node: str) -> dict[str, int | None]:
    return {each.subnet_name: each.secondary_ip_count for each in containers_of(await world.get(node))}


@pytest.mark.parametrize(("maximum", "carried"), [("250", 12), ("12", 12), ("8", 12)])
async def test_a_count_from_before_the_first_nc_is_granted_once(
    world: World, maximum: str, carried: int
) -> None:
    await world.node("a", annotations={names.MAX_IPS: maximum})
    await old_nnc(world, "a", carried)
    replica = await world.replica()
    await world.subnet("one", "10.1.0.0/24")
    await replica.settle()
    once = min(carried, int(maximum))
    assert await granted(world, "a") == {"one": once}
    await moved(world, replica, "one", "two", "10.2.0.0/24")
    assert await granted(world, "a") == {"one": once, "two": 0}


async def test_a_request_that_is_moved_counts_what_the_node_still_has_towards_its_maximum(
    world: World,
) -> None:
    await world.node("a", annotations={names.MAX_IPS: "12"})
    replica = await world.replica()
    await world.subnet("one", "10.1.0.0/24")
    await replica.settle()
    await world.ask("a", 10)
    await replica.settle()
    await moved(world, replica, "one", "two", "10.2.0.0/24")
    new = next(each for each in containers_of(await world.get("a")) if each.subnet_name == "two")
    await world.ask_raw("a", {new.id: 10})
    await replica.settle()
    assert await granted(world, "a") == {"one": 10, "two": 2}


def keep_account(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wrote a request, as a real API server says it; the embedded one keeps no account of that."""
    listed = replica.api.list
    spec: dict[str, Any] = {"f:spec": {"f:requestedIPCount": {}}}

    async def accounted(kind: Any, *arguments: Any, **options: Any) -> Any:
        found = await listed(kind, *arguments, **options)
        if kind is NodeNetworkConfig:
            for each in found.items:
                each.metadata.managed_fields = [{"apiVersion": "acn.azure.com/v1alpha", "fieldsV1": spec}]
        return found

    monkeypatch.setattr(replica.api, "list", accounted)


async def test_an_agent_that_asks_for_the_same_is_served_by_the_nc_that_came_instead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.node("a")
    replica = await world.replica()
    keep_account(replica, monkeypatch)
    await world.subnet("one", "10.1.0.0/30")  # its only address is the primary
    await replica.settle()
    await old_write(world, "a", 16)
    await replica.settle()
    assert await granted(world, "a") == {"one": 0}
    await moved(world, replica, "one", "two", "10.2.0.0/24")
    assert await granted(world, "a") == {"two": 16}
    await old_write(world, "a", 16)
    await replica.settle()
    assert await granted(world, "a") == {"two": 16}
    assert replica.told.count("UnknownNetworkContainer") == 0
    await moved(world, replica, "two", "three", "10.3.0.0/24")
    assert await granted(world, "a") == {"two": 16, "three": 0}, "it has them already"


# Scaling values


def old_status(node: str, number: int, **scaler: Any) -> OldStatus:
    nc = OldContainer(
        id=str(uuid.uuid5(uuid.NAMESPACE_DNS, node)),
        assignment_mode="dynamic",
        node_ip="192.0.2.7",
        primary_ip=f"10.1.0.{number}/24",
        subnet_address_space="10.1.0.0/24",
        subnet_name="pods",
        subnet_id="pods",
        type="vnet",
        version=3,
        ip_assignments=[],
    )
    return OldStatus(network_containers=[nc], scaler=OldScaler(**scaler))


async def shown(world: World, node: str) -> tuple[int | None, ...]:
    status = (await seen(world, node)).status
    found = (status.scaler if status else None) or OldScaler()
    return (
        found.batch_size,
        found.request_threshold_percent,
        found.release_threshold_percent,
        found.max_ip_count,
    )


async def test_scaling_values_of_an_older_control_plane_are_taken_over(world: World) -> None:
    values = {"batch_size": 10, "request_threshold_percent": 30, "release_threshold_percent": 130}
    for number, (node, maximum) in enumerate((("a", 30), ("b", 250), ("c", 100_000)), start=10):
        await world.node(node)
        await old_nnc(world, node, 10, old_status(node, number, **values, max_ip_count=maximum))
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    status = (await world.get_subnet()).status
    assert status is not None
    assert status.scaler == Scaler(batch=10, buffer=0.3)
    assert await shown(world, "a") == (10, 30, 130, 30), "the maximum is the node's own"
    assert await shown(world, "b") == (10, 30, 130, 250)
    assert await shown(world, "c") == (10, 30, 130, 250), "no more than usual on an NNC's word"
    await world.change_subnet("pods", {"scaler": {"batch": 8}})
    await replica.settle()
    assert await shown(world, "a") == (8, 30, 130, 30)
    assert await shown(world, "b") == (8, 30, 130, 250)
    await old_write(world, "a", 40)
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 30
    writes = replica.api.writes.copy()
    await replica.settle()
    assert replica.api.writes == writes, "no loop"


async def test_what_the_node_says_of_its_maximum_rules_while_it_does(world: World) -> None:
    await world.node("a")
    await old_nnc(
        world, "a", 0, old_status("a", 9, batch_size=16, request_threshold_percent=50, max_ip_count=30)
    )
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    for stated, maximum in (("40", 40), (None, 30)):
        note = MergePatch({"metadata": {"annotations": {names.MAX_IPS: stated}}})
        await world.client.patch(Node, "a", note)
        await replica.settle()
        assert (await shown(world, "a"))[3] == maximum


async def test_a_subnet_recovers_whose_nodes_may_have_few(world: World) -> None:
    """Each holds 12 and a primary, and never more: 39 of 61, whatever the buffer."""
    nodes = ("a", "b", "c")
    for name in nodes:
        await world.node(name, annotations={names.MAX_IPS: "12"})
    await world.node("burst")
    replica = await world.replica()
    await world.subnet(space="10.1.0.0/26")
    await replica.settle()
    for name in nodes:
        await old_write(world, name, 12)
    await world.ask("burst", 16)
    await replica.settle()
    status = (await world.get_subnet()).status
    assert status is not None
    assert (status.capacity, status.exhausted) == (61, True)
    await world.ask("burst", 0, ids(await world.nc("burst")))
    await world.client.patch(Node, "burst", MergePatch({"metadata": {"annotations": {names.MAX_IPS: "0"}}}))
    await replica.settle()
    status = (await world.get_subnet()).status
    assert status is not None
    assert status.exhausted is False


async def test_a_node_can_lower_its_maximum_but_its_node_object_has_the_last_word(world: World) -> None:
    await world.node("a")
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    beside = ((await world.get("a")).metadata.annotations or {})[names.SCALER]
    planted = msgspec.json.encode({"scaler": {"value": {"maxIPCount": 3}, "beside": beside}}).decode()
    note = MergePatch({"metadata": {"annotations": {names.CONVERSION: planted}}})
    await world.client.patch(NodeNetworkConfig, "a", note, NAMESPACE)
    await replica.settle()
    await world.ask("a", 40)
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 3
    await world.client.patch(Node, "a", MergePatch({"metadata": {"annotations": {names.MAX_IPS: "40"}}}))
    await replica.settle()
    assert (await world.nc("a")).secondary_ip_count == 40


# What an old agent looks at


async def history(world: World, node: str, since: str) -> list[NodeNetworkConfig]:
    """Every state of the NNC after `since`, in order."""
    last = (await world.get(node)).metadata.resource_version
    found: list[NodeNetworkConfig] = []
    events = world.client.watch(
        NodeNetworkConfig, NAMESPACE, resource_version=since, field_selector=f"metadata.name={node}"
    )
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Change):
                found.append(event.object)
            if event.resource_version == last:
                return found
    raise AssertionError("the watch ended early")


async def a_life(world: World) -> list[NodeNetworkConfig]:
    """From a node without a subnet through grants, other scaling values and releases."""
    replica = await world.replica()
    since = (await world.client.list(NodeNetworkConfig, NAMESPACE)).resource_version
    await world.node("a")
    await replica.settle()
    await world.subnet()
    await replica.settle()
    for count in (5, 9):
        await old_write(world, "a", count)
        await replica.settle()
    await world.change_subnet("pods", {"scaler": {"batch": 8}})
    await replica.settle()
    await old_write(world, "a", 6, ids(await world.nc("a"))[:3])
    await replica.settle()
    await old_write(world, "a", 6)
    await replica.settle()
    return await history(world, "a", since)


async def test_spec_status_and_annotations_change_each_by_itself(world: World) -> None:
    """The first agents look at no update that changes the generation: what they must see comes without."""
    states = await a_life(world)
    kinds = []
    for old, new in pairwise(states):
        spec, status = old.spec != new.spec, old.status != new.status
        notes = old.metadata.annotations != new.metadata.annotations
        assert spec + status + notes <= 1, (old, new)
        assert (old.metadata.generation != new.metadata.generation) == spec
        kinds.append("spec" if spec else "status" if status else "notes")
    assert kinds.count("spec") == 4, "as often as the agent wrote"
    assert kinds.count("status") == 4, "the NC, two grants, one release"


async def test_no_network_container_is_shown_before_scaling_values(world: World) -> None:
    for each in await a_life(world):
        if containers_of(each):
            assert names.SCALER in (each.metadata.annotations or {})


async def test_what_an_old_agent_demands_of_every_state(world: World) -> None:
    states = await a_life(world)
    node = await world.client.get(Node, "a")
    before = states[0]
    for each in states:
        (owner,) = each.metadata.owner_references or []
        assert (owner.kind, owner.uid, owner.controller) == ("Node", node.metadata.uid, True)
        for nc in containers_of(each):
            assert str(uuid.UUID(nc.id)) == nc.id
            assert [str(uuid.UUID(ip.id)) for ip in nc.secondary_ips or ()] == ids(nc)
            assert (nc.node_ip, nc.assignment_mode) == ("192.0.2.7", "dynamic")
            assert ip_network(nc.subnet_address_space).prefixlen == 24
            for old in containers_of(before):
                changed = set(ids(old)) != set(ids(nc))
                assert ((nc.version or 0) > (old.version or 0)) == changed
        before = each
    released = (states[-2].spec or NodeNetworkConfigSpec()).released_ips or []
    assert len(released) == 3
    assert not set(released) & set(ids(await world.nc("a")))


@pytest.mark.parametrize("controller", [None, False])
async def test_an_nnc_that_its_node_only_owns_is_put_under_its_control(
    world: World, controller: bool | None
) -> None:
    await world.node("a")
    node = await world.client.get(Node, "a")
    references = [
        OwnerReference(
            api_version="v1", kind="Node", name="a", uid=node.metadata.uid or "", controller=controller
        ),
        OwnerReference(api_version="x.io/v1", kind="Machine", name="m", uid="u-1", controller=True),
    ]
    metadata = ObjectMeta(name="a", namespace=NAMESPACE, owner_references=references)
    await world.client.create(NodeNetworkConfig(metadata=metadata))
    replica = await world.replica()
    await world.subnet()
    await replica.settle()
    found = {each.kind: each.controller for each in (await world.get("a")).metadata.owner_references or ()}
    assert found == {"Machine": None, "Node": True}
    assert (await world.nc("a")).primary_ip


# ClusterSubnetStates

INSTALLED = CustomResourceDefinition.resource


async def install(world: World) -> None:
    await world.client.create(SUBNET_STATES, resource=INSTALLED)


async def look(replica: Replica, name: str = "pods") -> Result | None:
    await replica.refresh()
    return await replica.reconcilers.states.reconcile(Key(NAMESPACE, name))


async def state(world: World, name: str = "pods") -> ClusterSubnetState:
    return await world.client.get(ClusterSubnetState, name, NAMESPACE)


async def said(world: World, name: str = "pods") -> bool | None:
    status = (await state(world, name)).status
    return status.exhausted if status else None


async def declared(world: World) -> Replica:
    replica = await world.replica()
    await world.subnet(
        space="10.1.0.0/26", thresholds=Thresholds(upper=0.5, lower=0.4), scaler=ScalerOverride(batch=8)
    )  # 61 addresses: exhausted above 30
    await world.node("a")
    await replica.settle()
    return replica


async def test_a_state_follows_its_subnet(world: World) -> None:
    replica = await declared(world)
    await install(world)
    await look(replica)
    found, subnet = await state(world), await world.get_subnet()
    assert found.status is not None
    assert (found.status.exhausted, found.status.timestamp[-1]) == (False, "Z")
    (owner,) = found.metadata.owner_references or []
    assert (owner.kind, owner.uid) == ("ClusterSubnet", subnet.metadata.uid)
    await old_write(world, "a", 40)
    await replica.settle()
    world.clock.ahead = 10
    await look(replica)
    assert await said(world) is True
    assert (await state(world)).status != found.status
    writes = replica.api.writes.copy()
    await old_write(world, "a", 41)
    await replica.settle()
    await look(replica)
    assert replica.api.writes["status ClusterSubnetState"] == writes["status ClusterSubnetState"]


async def test_a_state_that_somebody_changed_or_deleted_is_mended(world: World) -> None:
    replica = await declared(world)
    await install(world)
    await look(replica)
    wrong = msgspec.structs.replace(
        await state(world), status=ClusterSubnetStateStatus(exhausted=True, timestamp="never")
    )
    await world.client.update_status(wrong)
    again = await look(replica)
    assert again is not None
    world.clock.ahead += (again.requeue_after or 0) + 1
    await look(replica)
    assert await said(world) is False
    await world.client.delete(ClusterSubnetState, "pods", NAMESPACE)
    world.clock.ahead += 301
    await look(replica)
    assert await said(world) is False


async def test_a_state_that_vanishes_as_it_is_written_silences_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await declared(world)
    await install(world)
    await look(replica)
    await old_write(world, "a", 40)
    await replica.settle()

    async def too_late(obj: Any) -> Any:
        await world.client.delete(ClusterSubnetState, obj.metadata.name, NAMESPACE)
        return await world.client.update_status(obj)

    with monkeypatch.context() as patched:
        patched.setattr(replica.api, "update_status", too_late)
        again = await look(replica)
    assert again is not None
    assert 0 < (again.requeue_after or 0) < 60
    await world.subnet("more", space="10.2.0.0/24")
    await replica.settle()
    await look(replica, "more")
    assert await said(world, "more") is False
    await look(replica)
    assert await said(world) is True


async def test_a_state_of_a_former_subnet_of_the_name_goes_with_the_present_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is found before the garbage collector has come to it."""
    replica = await declared(world)
    await install(world)
    former = OwnerReference(
        api_version=ClusterSubnet.resource.api_version, kind="ClusterSubnet", name="pods", uid="former"
    )
    other = OwnerReference(api_version="x.io/v1", kind="Machine", name="m", uid="u-1")
    metadata = ObjectMeta(name="pods", namespace=NAMESPACE, owner_references=[other])
    await world.client.create(ClusterSubnetState(metadata=metadata))

    async def get(*arguments: Any) -> Any:
        found = await world.client.get(*arguments)
        found.metadata.owner_references = [former, other]
        return found

    monkeypatch.setattr(replica.api, "get", get)
    await look(replica)
    owners = [each.uid for each in (await state(world)).metadata.owner_references or ()]
    assert owners == ["u-1", (await world.get_subnet()).metadata.uid]


async def test_a_state_that_somebody_else_made_says_what_we_say_but_stays_theirs(
    world: World,
) -> None:
    replica = await declared(world)
    await install(world)
    for name in ("pods", "other"):
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels={"made-by": "somebody"})
        made = await world.client.create(ClusterSubnetState(metadata=metadata))
        made.status = ClusterSubnetStateStatus(exhausted=True, timestamp="1")
        await world.client.update_status(made)
    other = await state(world, "other")
    await look(replica)
    assert await look(replica, "other") is None
    found = await state(world)
    assert await said(world) is False
    assert found.metadata.labels == {"made-by": "somebody"}
    assert not found.metadata.owner_references, "it does not go with our subnet"
    assert await state(world, "other") == other


async def test_where_there_is_no_such_kind_it_is_asked_for_once_a_minute(world: World) -> None:
    replica = await declared(world)
    await world.subnet("more", space="10.2.0.0/24")
    await replica.settle()
    for _ in range(5):
        for name in ("pods", "more"):
            wait = await look(replica, name)
            assert wait is not None
            assert 0 < (wait.requeue_after or 0) <= 60
    assert replica.api.writes["create ClusterSubnetState"] == 1
    await install(world)
    world.clock.ahead += 61
    for name in ("pods", "more"):
        await look(replica, name)
        assert await said(world, name) is False
    await world.client.delete(INSTALLED, SUBNET_STATES["metadata"]["name"])
    world.clock.ahead += 301
    for name in ("pods", "more"):
        wait = await look(replica, name)
        assert wait is not None
        assert (wait.requeue_after or 0) <= 60
    with pytest.raises(NotFound):
        await state(world)


async def test_the_whole_process_makes_a_state_that_goes_with_its_subnet(world: World) -> None:
    await world.subnet()

    async def is_said() -> bool:
        try:
            return await said(world) is False
        except NotFound:
            return False

    async def is_gone() -> bool:
        return not (await world.client.list(ClusterSubnetState, NAMESPACE)).items

    await install(world)
    async with controllers(world):
        await becomes(is_said)
        await world.client.delete(ClusterSubnet, "pods", NAMESPACE)
        await becomes(is_gone)


def test_states_are_not_among_our_own_kinds() -> None:
    kinds: list[dict[str, Any]] = crds()
    assert SUBNET_STATES["metadata"]["name"] not in {each["metadata"]["name"] for each in kinds}
