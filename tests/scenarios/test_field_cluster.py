"""What users of other pod networks suffered, by its row in the list: what takes a cluster to show."""

import asyncio

import pytest

from subnetes.api.core import Pod
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.client import PAGE_SIZE
from tests.scenarios.record import double_grants
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


async def test_row_04_an_agent_that_restarts_under_load_gives_no_address_twice(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    await world.node("a")
    await world.joined()
    early = await world.pods("a", 20)
    late = []
    for _ in range(3):
        late += await world.pods("a", 15)
        await world.crash_agent("a")
        await world.delete_pods(early[:5])
        early = early[5:]
        await world.restart_agent("a")
    addresses = await world.running(early + late)
    held = [ip.address for ip in world.nodes["a"].agent.ipam.pool if ip.holder]
    assert set(addresses) <= set(held)
    assert len(held) == len(set(held))


async def test_row_07_in_a_scarce_subnet_idle_ips_do_not_stay_with_idle_nodes(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/26")  # 61 addresses; three idle nodes would keep 48
    for name in "abc":
        await world.node(name)
    await world.until(lambda: all(len(world.granted(name)) == 15 for name in "abc"))
    await world.running(await world.pods("a", 58))
    assert [len(world.granted(name)) for name in "abc"] == [58, 0, 0]


async def test_row_08_a_mass_reschedule_is_one_round_trip_and_no_error(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    for name in "ab":
        await world.node(name, quiet=0.3, at_most=5.0, wait=20.0)
    await world.joined()
    await world.running(await world.pods("a", 60))
    await world.until(lambda: len(world.granted("b")) == 15)
    await world.quiet()
    world.writes.forget()
    await world.node_dies("a")
    await world.running(await world.pods("b", 60))
    assert world.writes.parts("b") == ["spec", "status"]
    assert world.failed_adds("b") == 0
    assert await world.events("NoIPAvailable") == []


async def test_row_11_lists_are_paged_however_many_nodes_there_are(bare_world: World) -> None:
    world, count = bare_world, 2 * PAGE_SIZE + 1
    gate = asyncio.Semaphore(32)

    async def make(number: int) -> None:
        body = {
            "apiVersion": NodeNetworkConfig.resource.api_version,
            "kind": "NodeNetworkConfig",
            "metadata": {"name": f"n{number:04}", "namespace": NAMESPACE},
        }
        async with gate:
            await world.client.create(body, resource=NodeNetworkConfig.resource)

    await asyncio.gather(*map(make, range(count)))
    before = await world.requests()
    found = await world.client.list(NodeNetworkConfig, NAMESPACE)
    asked = await world.requests() - before
    assert len(found.items) == count
    assert asked["LIST", "nodenetworkconfigs", "", 200] == 3


async def test_row_14_a_deleted_node_leaks_nothing_and_a_live_pod_keeps_its_ip(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/26")
    for name in "ab":
        await world.node(name)
    await world.joined()
    await world.running(await world.pods("a", 10))
    pods = await world.pods("b", 10)
    addresses = await world.running(pods)
    await world.kubelet_stops("b")
    for pod in pods:  # by force: the API forgets them, the machine does not
        await world.client.delete(Pod, pod.name, pod.namespace, grace_seconds=0)
    await world.node_dies("a")
    await world.until(lambda: world.nnc("a") is None)
    await world.sweeps("b", 3)
    held = {ip.address for ip in world.nodes["b"].agent.ipam.pool if ip.holder}
    assert held == set(addresses)
    await world.until(lambda: (world.subnet_status("pods").reserved or 0) == 1 + len(world.granted("b")))
    await world.kubelet_starts("b")
    assert double_grants(world.writes.all) == []
