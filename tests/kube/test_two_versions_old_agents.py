"""Agents of v1alpha, in both their generations, under the new control plane, beside agents of v1beta1."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from subnetes.api.core import Node as NodeObject
from subnetes.api.names import NAMESPACE
from subnetes.ipam.pool import State
from tests.harness.control_plane import ControlPlane
from tests.harness.old_cns import NNCS, STATES, Node, OldCns
from tests.harness.old_pool import PENDING_PROGRAMMING, PENDING_RELEASE
from tests.harness.two_versions import embedded_with_both, real_with_both
from tests.harness.wire import Wire
from tests.scenarios.parts import ApiServer
from tests.scenarios.world import World

pytestmark = pytest.mark.slow

BATCH = 16


@pytest.fixture(scope="module")
def real_plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with real_with_both(assets, tmp_path_factory.mktemp("webhook")) as plane:
        yield plane


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiServer]:
    if request.param == "real":
        plane: Any = request.getfixturevalue("real_plane")
        yield plane
        return
    async with embedded_with_both(tmp_path) as server:
        yield server


class Cluster:
    """A world with DNC-RC, in which some nodes have agents of old."""

    def __init__(self, world: World, wire: Wire, *, applies: bool) -> None:
        self.world, self.wire = world, wire
        self._writes = "apply" if applies else "merge"
        self.old: dict[str, OldCns] = {}
        self._stack = AsyncExitStack()

    async def old_node(self, generation: int, writes: str = "", name: str = "") -> OldCns:
        name, address = name or f"old-{len(self.old)}", f"198.18.9.{len(self.old) + 1}"
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        made = await self.world.client.create(body, resource=NodeObject.resource)
        cns = OldCns(
            self.wire, Node(name, made["metadata"]["uid"], address), generation, writes=writes or self._writes
        )
        self.old[name] = await self._stack.enter_async_context(cns)
        return cns

    async def settled(self, cns: OldCns, held: int) -> dict[str, Any]:
        """Until the agent holds so many, all of them granted, and nothing is on its way; the NNC."""
        await cns.until(lambda: len(cns.pool.ips) == held and not cns.pool.of(PENDING_RELEASE))
        while True:
            nnc: dict[str, Any] = (await self.wire.get(f"{NNCS}/{cns.node.name}")).ok()
            if not nnc["spec"].get("ipsNotInUse") and nnc["status"]["assignedIPCount"] == held:
                return nnc
            await cns.until(lambda: True)
            await asyncio.sleep(0.05)

    async def exhausted(self, subnet: str) -> bool:
        state = (await self.wire.get(f"{STATES}/{subnet}")).ok()
        assert isinstance(state["status"]["timestamp"], str)
        return bool(state["status"]["exhausted"])

    async def watch_owners(self) -> None:
        """Whoever may hand an address out is alone with it; looked at all the time."""
        while True:
            counted = Counter(self._usable())
            assert max(counted.values(), default=1) == 1, counted.most_common(5)
            await asyncio.sleep(0.005)

    def _usable(self) -> Iterator[str]:
        for cns in self.old.values():
            yield from (ip.address for ip in cns.pool.ips.values() if ip.state != PENDING_RELEASE)
        for living in self.world.nodes.values():
            pool = living.agent.ipam.pool
            yield from (ip.address for ip in pool if ip.state is not State.PENDING_RELEASE)

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def cluster(api: ApiServer) -> AsyncIterator[Cluster]:
    """After the story all owners are looked at once more, and the invariants must hold."""
    folder, real = Path(tempfile.mkdtemp(prefix="world-")), isinstance(api, ControlPlane)
    try:
        async with World(api, folder, shared=real) as world, Wire(api, "azure-cns") as wire:
            await wire.request("DELETE", STATES)
            await world.start_controller()
            made = Cluster(world, wire, applies=real)
            watchdog = asyncio.create_task(made.watch_owners())
            try:
                yield made
                await world.check()
                assert not watchdog.done() or watchdog.exception() is None, watchdog.exception()
                for cns in made.old.values():
                    assert (cns.pool.faults, cns.failures) == ([], []), cns.node
            finally:
                watchdog.cancel()
                await asyncio.gather(watchdog, return_exceptions=True)
                await made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


GENERATIONS = pytest.mark.parametrize("generation", [1, 2], ids=["first", "second"])


@GENERATIONS
async def test_an_old_agent_gets_ips_more_ips_and_gives_them_back(cluster: Cluster, generation: int) -> None:
    await cluster.world.subnet("pods", "10.1.0.0/24")
    cns = await cluster.old_node(generation)
    nnc = await cluster.settled(cns, BATCH)
    assert nnc["status"]["scaler"] == {
        "batchSize": 16,
        "maxIPCount": 250,
        "releaseThresholdPercent": 150,
        "requestThresholdPercent": 50,
    }
    cns.want(5)
    await cns.running(5)
    cns.want(40)
    await cns.running(40)
    nnc = await cluster.settled(cns, 48)
    (container,) = nnc["status"]["networkContainers"]
    assert container["subnetID"] == container["subnetName"] == "pods"
    assert len(container["ipAssignments"]) == nnc["spec"]["requestedIPCount"] == 48
    cns.want(3)
    nnc = await cluster.settled(cns, BATCH)
    assert nnc["spec"]["requestedIPCount"] == BATCH
    steps = [spec["requestedIPCount"] for spec in cns.written]
    assert steps[-1] == BATCH
    assert max(steps) == 48
    if generation == 1:
        assert {abs(a - b) for a, b in pairwise(steps)} <= {0, BATCH}


@GENERATIONS
async def test_an_agent_that_reads_and_puts_the_whole_object_works_too(
    cluster: Cluster, generation: int
) -> None:
    await cluster.world.subnet("pods", "10.1.0.0/24")
    cns = await cluster.old_node(generation, writes="put")
    cns.want(30)
    await cns.running(30)
    cns.want(1)
    await cluster.settled(cns, BATCH)


async def test_ips_wait_until_the_host_has_programmed_their_version(cluster: Cluster) -> None:
    await cluster.world.subnet("pods", "10.1.0.0/24")
    cns = await cluster.old_node(2)
    cns.programs = False
    cns.want(3)
    await cns.until(lambda: len(cns.pool.of(PENDING_PROGRAMMING)) == BATCH)
    assert cns.addresses == []
    cns.programs = True
    await cns.running(3)


@GENERATIONS
async def test_a_restarted_old_agent_goes_on_from_what_it_had_asked_for(
    cluster: Cluster, generation: int
) -> None:
    """It keeps nothing: its request and what it released stand in the NNC."""
    await cluster.world.subnet("pods", "10.1.0.0/24")
    cns = await cluster.old_node(generation)
    cns.want(20)
    await cns.running(20)
    await cluster.settled(cns, 32)
    before = set(cns.pool.ips)
    async with OldCns(cluster.wire, cns.node, generation, writes=cns.writes) as again:
        again.want(20)
        await again.running(20)
        assert set(again.pool.ips) == before
        assert again.written == []


async def test_old_and_new_agents_share_a_subnet_through_exhaustion_and_back(cluster: Cluster) -> None:
    world = cluster.world
    await world.subnet("pods", "10.1.0.0/25")  # 125 addresses; exhausted above 112
    first, second = await cluster.old_node(1), await cluster.old_node(2)
    await world.node("new")
    await world.joined()
    first.want(25)
    second.want(25)
    await first.running(25)
    await second.running(25)
    await world.until(lambda: bool(world.subnet_status("pods").exhausted))
    await world.until(lambda: first.monitor.exhausted and second.monitor.exhausted)
    assert await cluster.exhausted("pods")
    await cluster.settled(first, 26)  # one is left to each, as agents of old count it
    await cluster.settled(second, 26)
    pods = await world.pods("new", 30)
    await world.running(pods)
    first.want(30)
    second.want(30)
    await first.running(30)
    await second.running(30)
    assert await cluster.exhausted("pods")
    first.want(2)
    second.want(2)
    await world.delete_pods(pods)
    await world.gone(pods)
    await world.until(lambda: world.subnet_status("pods").exhausted is False)
    await world.until(lambda: not first.monitor.exhausted and not second.monitor.exhausted)
    await cluster.settled(first, BATCH)
    await cluster.settled(second, BATCH)


@GENERATIONS
async def test_an_old_agent_in_a_full_subnet_gets_ips_when_others_let_go(
    cluster: Cluster, generation: int
) -> None:
    world = cluster.world
    await world.subnet("pods", "10.1.0.0/27")  # 29 addresses
    await world.node("new")
    await world.joined()
    pods = await world.pods("new", 25)
    await world.running(pods)
    await world.until(lambda: bool(world.subnet_status("pods").exhausted))
    cns = await cluster.old_node(generation)
    cns.want(6)
    await cns.until(lambda: len(cns.addresses) == 2)
    assert len(cns.pool.waiting) == 4
    await world.delete_pods(pods[:10])
    await cns.running(6)
    await world.delete_pods(pods[10:])
    await world.gone(pods)


async def test_without_a_scaler_an_old_agent_stands_still(cluster: Cluster) -> None:
    """An NC with its IPs but no scaler, as while a control plane is being replaced."""
    world = cluster.world
    await world.crash_controller()
    cns = await cluster.old_node(1, name="bare")
    twin = OldCns(cluster.wire, cns.node, 2, writes=cns.writes)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "bare", "uid": cns.node.uid, "controller": True}
    body = {
        "apiVersion": "acn.azure.com/v1alpha",
        "kind": "NodeNetworkConfig",
        "metadata": {"name": "bare", "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"requestedIPCount": 0},
    }
    (await cluster.wire.post(NNCS, body)).ok()
    container = {
        "id": "0c5a7d5e-3c5f-4f0e-9a57-4d5a4c5e6f70",
        "assignmentMode": "dynamic",
        "nodeIP": cns.node.address,
        "primaryIP": "10.1.0.4",
        "subnetAddressSpace": "10.1.0.0/24",
        "subnetName": "pods",
        "version": 1,
    }
    async with twin:
        twin.want(3)
        cns.want(3)
        status = {"status": {"networkContainers": [container]}}
        (await cluster.wire.merge(f"{NNCS}/bare/status", status)).ok()
        await cns.until(lambda: bool(cns.pool.versions) and bool(twin.pool.versions))
        for each in (cns, twin):
            looks = each.looks
            each.want(4)
            await each.until(lambda each=each, looks=looks: each.looks > looks)  # type: ignore[misc]
        assert (cns.written, twin.written) == ([], [])
        scaler = {"batchSize": 16, "maxIPCount": 250, "requestThresholdPercent": 50}
        (await cluster.wire.merge(f"{NNCS}/bare/status", {"status": {"scaler": scaler}})).ok()
        await cns.until(lambda: cns.written[:1] == [{"requestedIPCount": 16, "ipsNotInUse": []}])
        await twin.until(lambda: twin.written != [])
    (await cluster.wire.request("DELETE", f"{NNCS}/bare")).ok()
    await world.delete_node_object("bare")
    await world.start_controller()
