"""Who grants may change; what was granted stays: etcd is the record."""

import uuid
from typing import Any

import pytest

from subnetes.api.core import Node
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.patches import MergePatch
from tests.scenarios.record import double_grants
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


def ids(world: World, node: str) -> dict[str, str]:
    return {ip.id: ip.address for nc in world.ncs(node) for ip in nc.secondary_ips or []}


async def test_a_new_leader_with_an_empty_database_goes_on_where_the_old_one_was(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/25")
    for name in ("a", "b"):
        await world.node(name)
    await world.joined()
    addresses = await world.running(await world.pods("a", 20) + await world.pods("b", 5))
    await world.quiet()
    before = {name: ids(world, name) for name in ("a", "b")}
    containers = {name: [nc.id for nc in world.ncs(name)] for name in ("a", "b")}

    await world.crash_controller()
    more = await world.pods("a", 30)  # asked for while nobody grants
    await world.start_controller()
    await world.node("c")
    addresses += await world.running(more + await world.pods("c", 10))
    await world.quiet()
    assert len(set(addresses)) == 65
    assert {name: [nc.id for nc in world.ncs(name)] for name in ("a", "b")} == containers
    assert before["a"].items() <= ids(world, "a").items()
    assert before["b"] == ids(world, "b")
    assert double_grants(world.writes.all) == []


async def theirs(world: World, node: str, primary: str, *addresses: str) -> dict[str, str]:
    """A Node and its NNC as another control plane left them; the ids of its IPs."""
    made = await world.client.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}, resource=Node.resource
    )
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    granted = [{"id": str(uuid.uuid4()), "address": each} for each in addresses]
    container = str(uuid.uuid4())
    body: dict[str, Any] = {
        "apiVersion": NodeNetworkConfig.resource.api_version,
        "kind": "NodeNetworkConfig",
        "metadata": {"name": node, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"secondaryIPs": {container: len(granted)}},
    }
    await world.client.create(body, resource=NodeNetworkConfig.resource)
    nc = {
        "id": container,
        "assignmentMode": "dynamic",
        "type": "vnet",
        "subnetName": "pods",
        "subnetAddressSpace": "10.1.0.0/26",
        "defaultGateway": "10.1.0.1",
        "primaryIP": primary,
        "version": 7,
        "secondaryIPs": granted,
        "secondaryIPCount": len(granted),
    }
    status = MergePatch({"status": {"networkContainers": [nc], "status": "Updated"}})
    await world.client.patch(NodeNetworkConfig, node, status, NAMESPACE, subresource="status")
    return {each["id"]: each["address"] for each in granted}


async def test_what_another_control_plane_granted_is_adopted_and_never_granted_again(
    bare_world: World,
) -> None:
    world = bare_world
    granted = await theirs(world, "a", "10.1.0.4", *(f"10.1.0.{n}" for n in range(5, 20)))
    await world.subnet("pods", "10.1.0.0/26")
    await world.until(lambda: len(world.ncs("a")) == 1)
    (before,) = world.ncs("a")
    await world.start_controller()
    await world.node("a")
    await world.node("b")
    addresses = await world.running(await world.pods("a", 5) + await world.pods("b", 5))
    assert set(addresses[:5]) <= set(granted.values())
    assert not set(addresses[5:]) & set(granted.values())
    (after,) = world.ncs("a")
    assert (after.id, after.primary_ip) == (before.id, before.primary_ip)
    assert granted.items() <= ids(world, "a").items()
    assert double_grants(world.writes.all) == []


async def test_a_conflict_that_was_there_is_reported_and_granted_to_nobody(bare_world: World) -> None:
    world = bare_world
    world.expect_conflict("10.1.0.10")
    await theirs(world, "a", "10.1.0.4", "10.1.0.9", "10.1.0.10")
    await theirs(world, "b", "10.1.0.5", "10.1.0.10", "10.1.0.11")
    await world.subnet("pods", "10.1.0.0/26")
    await world.start_controller()
    await world.node("c")
    pods = await world.pods("c", 40)
    addresses = await world.running(pods)
    assert not set(addresses) & {f"10.1.0.{n}" for n in (4, 5, 9, 10, 11)}
    said = [event.message for event in await world.events("AddressConflict")]
    assert any("10.1.0.10" in message for message in said), said
