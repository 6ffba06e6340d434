"""deploy/rbac on a real API server: the controller can do its work, and a node nothing but ask for itself."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.core import Event, Node, ObjectReference, Pod
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.process import Settings, dnc_rc, in_memory
from subnetes.controllers.status import containers_of
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.errors import Forbidden, Invalid, NotFound
from subnetes.kube.patches import JsonPatch, MergePatch
from subnetes.kube.services import run
from subnetes.kube.sources import from_kubeconfig
from tests.harness.clients import client_of
from tests.harness.control_plane import ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTROLLER = "system:serviceaccount:kube-system:subnetes-controller"
REFUSED = (Forbidden, Invalid)  # by RBAC, and by the admission policy


@pytest.fixture(scope="module")
def guarded(assets: Path) -> Iterator[ControlPlane]:
    """A control plane of its own: the policy must not bind other tests."""
    with ControlPlane(assets) as plane:
        for folder in ("crds", "rbac"):
            done = plane.kubectl("apply", "-f", str(DEPLOY / folder))
            assert done.returncode == 0, done.stderr
        waited: subprocess.CompletedProcess[str] = plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"
        )
        assert waited.returncode == 0, waited.stderr
        yield plane


def as_user(plane: ControlPlane, name: str) -> Client:
    return Client(from_kubeconfig(plane.users[name].kubeconfig))


async def becomes(question: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await question():
            await asyncio.sleep(0.05)


async def holds(client: Client, node: str, count: int) -> bool:
    try:
        found = containers_of(await client.get(NodeNetworkConfig, node, names.NAMESPACE))
    except NotFound:
        return False
    return bool(found) and found[0].secondary_ip_count == count


@asynccontextmanager
async def controllers(plane: ControlPlane) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with as_user(plane, CONTROLLER) as client:
        settings = Settings(identity="test", node_grace=4.0, terms=Terms(4, 3.0, 0.3))
        running = asyncio.create_task(run(dnc_rc(client, in_memory, settings), stop=stop))
        try:
            yield
        finally:
            stop.set()
            await running


async def patched(client: Client, node: str, document: dict[str, Any]) -> NodeNetworkConfig:
    return await client.patch(NodeNetworkConfig, node, MergePatch(document), names.NAMESPACE)


async def cluster(admin: Client) -> None:
    """A subnet and two nodes, each with its NNC."""
    metadata = ObjectMeta(name="pods", namespace=names.NAMESPACE)
    await admin.create(
        ClusterSubnet(metadata=metadata, spec=ClusterSubnetSpec(address_space=["10.1.0.0/24"]))
    )
    for name in "ab":
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await admin.create(node, resource=Node.resource)
    for name in "ab":
        await becomes(lambda name=name: holds(admin, name, 0))  # type: ignore[misc]


async def test_roles_let_the_controller_work_and_a_node_only_ask_for_itself(guarded: ControlPlane) -> None:
    async with client_of(guarded) as admin, as_user(guarded, "system:node:a") as agent, controllers(guarded):
        await cluster(admin)
        nc = containers_of(await agent.get(NodeNetworkConfig, "a", names.NAMESPACE))[0].id
        await becomes(lambda: is_refused(patched(agent, "b", {"spec": {"secondaryIPs": {"x": 1}}})))
        await patched(agent, "a", {"spec": {"secondaryIPs": {nc: 15}, "releasedIPs": []}})
        await becomes(lambda: holds(admin, "a", 15))
        await everything_else_is_refused(agent)
        await reading_and_events_work(agent)
        await a_node_returns(admin)
        await a_node_goes(admin)


async def is_refused(attempt: Awaitable[Any]) -> bool:
    """The policy takes effect a moment after it is created, so the first attempts may come through."""
    try:
        await attempt
    except REFUSED:
        return True
    return False


async def everything_else_is_refused(agent: Client) -> None:
    for metadata in (
        {"finalizers": None},
        {"annotations": {names.GRANTER: "me"}},
        {"annotations": None},
        {"ownerReferences": None},
        {"labels": {"x": "y"}},
    ):
        with pytest.raises(REFUSED):
            await patched(agent, "a", {"metadata": metadata})
    with pytest.raises(REFUSED):
        await agent.delete(NodeNetworkConfig, "a", names.NAMESPACE)
    empty = JsonPatch([{"op": "replace", "path": "/status/networkContainers", "value": []}])
    with pytest.raises(REFUSED):
        await agent.patch(NodeNetworkConfig, "a", empty, names.NAMESPACE, subresource="status")
    with pytest.raises(REFUSED):
        await agent.create(NodeNetworkConfig(metadata=ObjectMeta(name="c", namespace=names.NAMESPACE)))
    with pytest.raises(REFUSED):
        await agent.patch(
            ClusterSubnet, "pods", MergePatch({"spec": {"scaler": {"batch": 1}}}), names.NAMESPACE
        )
    with pytest.raises(REFUSED):
        await agent.list(Pod)


async def reading_and_events_work(agent: Client) -> None:
    assert (await agent.list(Pod, field_selector="spec.nodeName=a")).items == []
    assert [each.metadata.name for each in (await agent.list(ClusterSubnet, names.NAMESPACE)).items] == [
        "pods"
    ]
    about = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="p")
    metadata = ObjectMeta(name="p.1", namespace="default")
    await agent.create(
        Event(metadata=metadata, involved_object=about, reason="NoIPAvailable", type="Warning")
    )


async def a_node_returns(admin: Client) -> None:
    before = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
    await admin.delete(Node, "a")

    async def marked() -> bool:
        found = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
        return found.metadata.deletion_timestamp is not None

    await becomes(marked)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    await admin.create(node, resource=Node.resource)

    async def restored() -> bool:
        try:
            found = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
        except NotFound:
            return False
        same = [each.secondary_ips for each in containers_of(found)]
        return found.metadata.uid != before.metadata.uid and same == [
            each.secondary_ips for each in containers_of(before)
        ]

    await becomes(restored)


async def a_node_goes(admin: Client) -> None:
    await admin.delete(Node, "a")

    async def gone() -> bool:
        listed = await admin.list(NodeNetworkConfig, names.NAMESPACE)
        return [each.metadata.name for each in listed.items] == ["b"]

    await becomes(gone)
