"""A cluster of another control plane, with agents of v1alpha at work, becomes ours, and their pods run on.

The whole way: v1alpha only, the webhook, `subnetes migrate`, DNC-RC with a declared subnet. The agents are
started once, at the beginning.
"""

import asyncio
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from subnetes.api.crd import crds
from subnetes.controllers.migration import Pace
from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.old_cns import NNCS, Node, OldCns
from tests.harness.old_crds import SCALER, field_crd
from tests.harness.processes import start
from tests.harness.rest import Rest
from tests.harness.subnet_states import SUBNET_STATES
from tests.harness.two_versions import HUB, crd_path
from tests.harness.webhook_replicas import replicas
from tests.harness.widgets import install
from tests.harness.wire import Wire
from tests.scenarios.world import World

pytestmark = pytest.mark.slow

Api = ControlPlane | Embedded
BATCH = 16


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    if request.param == "real":
        with ControlPlane(request.getfixturevalue("assets")) as plane:
            plane.start_controller_manager()
            yield plane
    else:
        with Embedded() as server:
            yield server


@pytest.fixture
async def wire(api: Api) -> AsyncIterator[Wire]:
    rest = Rest(api.url, api.ca_file, api.token)
    ours = [each for each in crds() if each["metadata"]["name"] != field_crd()["metadata"]["name"]]
    for each in (field_crd(), SUBNET_STATES, *ours):
        install(rest, each)
    async with Wire(api, "azure-cns") as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because sockets' paths are."""
    made = Path(tempfile.mkdtemp(prefix="world-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


async def node_with_nnc(wire: Wire, number: int) -> Node:
    """As the other control plane left it: a batch of IPs, its scaler, a version some way up."""
    name, address = f"aks-{number}", f"10.240.0.{number + 4}"
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    uid = (await wire.post("/api/v1/nodes", body)).ok()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    nnc = {
        "apiVersion": "acn.azure.com/v1alpha",
        "kind": "NodeNetworkConfig",
        "metadata": {"name": name, "namespace": "kube-system", "ownerReferences": [owner]},
        "spec": {"requestedIPCount": BATCH, "availabilityZone": 1},
    }
    (await wire.post(NNCS, nnc, fieldManager="dnc-rc")).ok()
    container = {
        "assignmentMode": "dynamic",
        "defaultGateway": "10.1.0.1",
        "id": str(uuid.uuid4()),
        "ipAssignments": [
            {"ip": f"10.1.0.{number * 20 + n + 11}", "name": str(uuid.uuid4())} for n in range(BATCH)
        ],
        "nodeIP": address,
        "primaryIP": f"10.1.0.{number * 20 + 10}",
        "resourceGroupID": "MC_group",
        "status": "NCUpdateSuccess",
        "subcriptionID": "s-1",
        "subnetAddressSpace": "10.1.0.0/24",
        "subnetID": "pods",
        "subnetName": "pods",
        "type": "vnet",
        "version": 7,
        "vnetID": "vnet-1",
    }
    granted = {
        "assignedIPCount": BATCH,
        "networkContainers": [container],
        "scaler": SCALER,
        "status": "Updated",
    }
    (await wire.merge(f"{NNCS}/{name}/status", {"status": granted}, fieldManager="dnc-rc")).ok()
    return Node(name, uid, address)


async def migrate(api: Api, url: str, log: Path) -> None:
    command = [sys.executable, "-m", "subnetes.cli.main", "migrate", f"--webhook-url={url}"]
    child = start([*command, f"--kubeconfig={api.kubeconfig}"], log)
    try:
        assert await asyncio.to_thread(child.process.wait, 60) == 0, child.tail()
    finally:
        child.kill()


async def test_agents_at_work_do_not_notice_that_their_control_plane_is_another(
    api: Api, wire: Wire, folder: Path, tmp_path: Path
) -> None:
    writes = "apply" if isinstance(api, ControlPlane) else "merge"
    async with AsyncExitStack() as stack:
        agents = []
        for number, generation in enumerate((1, 2, 1, 2)):
            node = await node_with_nnc(wire, number)
            agents.append(await stack.enter_async_context(OldCns(wire, node, generation, writes=writes)))
        for cns in agents:
            cns.want(5)
            await cns.running(5)
        first = [dict(cns.pool.assigned) for cns in agents]
        webhooks = await stack.enter_async_context(replicas(api.kubeconfig, tmp_path))
        await migrate(api, webhooks.balancer.url, tmp_path / "migrate.log")
        world = await stack.enter_async_context(World(api, folder))
        await world.subnet("pods", "10.1.0.0/24", gateway=["10.1.0.1"], networkID="vnet-1")
        await world.start_controller(migration=Pace(rate=50, settle=0.5, look_every=0.1))
        async with asyncio.timeout(60):
            while (await wire.get(crd_path())).ok()["status"]["storedVersions"] != [HUB]:
                await asyncio.sleep(0.1)
        for cns in agents:
            cns.want(30)
        await world.node("new")
        pods = await world.pods("new", 10)
        await world.running(pods)
        for cns in agents:
            await cns.running(30)
        for cns, had in zip(agents, first, strict=True):
            assert had.items() <= cns.pool.assigned.items()
        await zones_stand(wire, agents)
        for cns in agents:
            cns.want(1)
            await cns.until(lambda cns=cns: len(cns.pool.ips) == BATCH)  # type: ignore[misc]
        used = [address for cns in agents for address in cns.addresses]
        assert len(set(used + [world.address(pod) for pod in pods])) == 14
        await world.check()
        assert [cns.pool.faults + cns.failures for cns in agents] == [[]] * 4


async def zones_stand(wire: Wire, agents: list[OldCns]) -> None:
    """What no part of ours has a use for is still there, and so is what agents of old live by."""
    for cns in agents:
        nnc: dict[str, Any] = (await wire.get(f"{NNCS}/{cns.node.name}")).ok()
        assert nnc["spec"]["availabilityZone"] == 1
        assert nnc["status"]["scaler"] == SCALER
        (container,) = nnc["status"]["networkContainers"]
        kept = {key: container[key] for key in ("resourceGroupID", "subcriptionID", "subnetID", "vnetID")}
        assert kept == {
            "resourceGroupID": "MC_group",
            "subcriptionID": "s-1",
            "subnetID": "pods",
            "vnetID": "vnet-1",
        }
