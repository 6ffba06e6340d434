"""deploy/rbac on a real API server: the controller can do its work, and a node nothing but ask for itself.

Both versions of NodeNetworkConfig are served, for old agents must get by with the same permissions.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from subnetes.api import names, nodenetworkconfig_v1alpha
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.clustersubnetstate import ClusterSubnetState
from subnetes.api.conversion import convert
from subnetes.api.core import Event, Node, ObjectReference, Pod
from subnetes.api.crd import crds
from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.model import to_builtins
from subnetes.api.nodenetworkconfig import NodeNetworkConfig, NodeNetworkConfigSpec
from subnetes.controllers.process import Settings, dnc_rc, in_memory
from subnetes.controllers.requests import asked_in_v1alpha
from subnetes.controllers.status import containers_of
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.errors import Conflict, Forbidden, Invalid, NotFound
from subnetes.kube.patches import Apply, JsonPatch, MergePatch
from subnetes.kube.services import run
from subnetes.kube.sources import from_kubeconfig
from tests.harness.clients import client_of
from tests.harness.control_plane import ControlPlane
from tests.harness.subnet_states import SUBNET_STATES
from tests.harness.webhook import ConversionWebhook, converting

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTROLLER = "system:serviceaccount:kube-system:subnetes-controller"
REFUSED = (Forbidden, Invalid)  # by RBAC, and by the admission policy
OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversionWebhook]:
    with ConversionWebhook(tmp_path_factory.mktemp("webhook"), converting(convert)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(
    assets: Path, webhook: ConversionWebhook, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane of its own: the policy must not bind other tests."""
    kinds = tmp_path_factory.mktemp("crds") / "crds.json"
    kinds.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": served_twice(webhook)}))
    with ControlPlane(assets) as plane:
        for folder in (kinds, DEPLOY / "rbac"):
            done = plane.kubectl("apply", "-f", str(folder))
            assert done.returncode == 0, done.stderr
        waited: subprocess.CompletedProcess[str] = plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"
        )
        assert waited.returncode == 0, waited.stderr
        yield plane


def served_twice(webhook: ConversionWebhook) -> list[dict[str, Any]]:
    """All our CRDs, with every version of NodeNetworkConfig served, and Azure's ClusterSubnetState."""
    ours = crds()
    nnc = ours[0]["spec"]
    nnc["conversion"] = webhook.crd_conversion()
    nnc["versions"] = [version | {"served": True} for version in nnc["versions"]]
    return [*ours, SUBNET_STATES]


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


@asynccontextmanager
async def cluster(admin: Client) -> AsyncIterator[None]:
    """A subnet and two nodes, each with its NNC; nothing is left of them at the end."""
    metadata = ObjectMeta(name="pods", namespace=names.NAMESPACE)
    await admin.create(
        ClusterSubnet(metadata=metadata, spec=ClusterSubnetSpec(address_space=["10.1.0.0/23"]))
    )
    for name in "ab":
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await admin.create(node, resource=Node.resource)
    for name in "ab":
        await becomes(lambda name=name: holds(admin, name, 0))  # type: ignore[misc]
    yield
    for each in (await admin.list(Node)).items:
        await admin.delete(Node, each.metadata.name)
    await becomes(lambda: are_gone(admin, NodeNetworkConfig))
    await admin.delete(ClusterSubnet, "pods", names.NAMESPACE)
    await becomes(lambda: are_gone(admin, ClusterSubnet))


async def are_gone(admin: Client, kind: type[Object]) -> bool:
    return not (await admin.list(kind, names.NAMESPACE)).items


async def test_roles_let_the_controller_work_and_a_node_only_ask_for_itself(guarded: ControlPlane) -> None:
    async with (
        client_of(guarded) as admin,
        as_user(guarded, "system:node:a") as agent,
        controllers(guarded),
        cluster(admin),
    ):
        nc = containers_of(await agent.get(NodeNetworkConfig, "a", names.NAMESPACE))[0].id
        await becomes(lambda: is_refused(patched(agent, "b", {"spec": {"secondaryIPs": {"x": 1}}})))
        await patched(agent, "a", {"spec": {"secondaryIPs": {nc: 15}, "releasedIPs": []}})
        await becomes(lambda: holds(admin, "a", 15))
        await everything_else_is_refused(agent)
        await reading_and_events_work(agent)
        await a_node_returns(admin)
        await a_node_goes(admin)


async def applied(client: Client, node: str, **spec: Any) -> OLD:
    """As an old agent writes: server-side apply, by force, of the whole spec in v1alpha."""
    document = OLD(metadata=ObjectMeta(name=node, namespace=names.NAMESPACE))
    whole = to_builtins(document) | {"spec": spec}
    return await client.patch(OLD, node, Apply(whole, force=True, field_manager="azure-cns"), names.NAMESPACE)


async def test_an_old_agent_gets_by_with_the_same_permissions(guarded: ControlPlane) -> None:
    async with (
        client_of(guarded) as admin,
        as_user(guarded, "system:node:a") as agent,
        controllers(guarded),
        cluster(admin),
    ):
        await becomes(lambda: is_refused(applied(agent, "b", requestedIPCount=1)))
        await applied(agent, "a", requestedIPCount=5, ipsNotInUse=[])
        await becomes(lambda: holds(admin, "a", 5))
        await it_writes_after_an_agent_of_today(admin, agent)
        await it_updates_as_the_first_ones_did(admin, agent)
        await it_reads_what_it_watches(agent)
        await everything_else_is_refused(agent)
        for metadata in (
            {"labels": {"x": "y"}},
            {"annotations": {names.GRANTER: "me"}},
            {"annotations": {names.CONVERSION: "{}"}},
            {"annotations": {names.CONVERSION: None}},
        ):
            with pytest.raises(REFUSED):
                await agent.patch(OLD, "a", MergePatch({"metadata": metadata}), names.NAMESPACE)


async def it_writes_after_an_agent_of_today(admin: Client, agent: Client) -> None:
    """What is carried for it is made anew, fields come and go, and the policy must bear all that."""
    nnc = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
    assert asked_in_v1alpha(nnc)
    nc = containers_of(nnc)[0]
    await patched(agent, "a", {"spec": {"secondaryIPs": {nc.id: 8}, "releasedIPs": []}})
    await becomes(lambda: holds(admin, "a", 8))
    nnc = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
    assert not asked_in_v1alpha(nnc)
    first, *_ = containers_of(nnc)[0].secondary_ips or []
    await applied(agent, "a", requestedIPCount=7, ipsNotInUse=[first.id])
    await becomes(lambda: holds(admin, "a", 7))
    await applied(agent, "a", requestedIPCount=10)  # an empty list is left out
    await becomes(lambda: holds(admin, "a", 10))
    nnc = await admin.get(NodeNetworkConfig, "a", names.NAMESPACE)
    assert asked_in_v1alpha(nnc)
    spec = nnc.spec or NodeNetworkConfigSpec()
    assert (spec.secondary_ips, spec.released_ips) == ({nc.id: 10}, None)


async def it_updates_as_the_first_ones_did(admin: Client, agent: Client) -> None:
    async def updated() -> bool:
        found = await agent.get(OLD, "a", names.NAMESPACE)
        assert found.spec is not None
        found.spec.requested_ip_count = 12
        try:
            await agent.update(found)
        except Conflict:
            return False
        return True

    await becomes(updated)
    await becomes(lambda: holds(admin, "a", 12))


async def it_reads_what_it_watches(agent: Client) -> None:
    listed = await agent.list(OLD, names.NAMESPACE, field_selector="metadata.name=a")
    assert [each.metadata.name for each in listed.items] == ["a"]
    states = await agent.list(ClusterSubnetState, names.NAMESPACE)
    assert [(each.metadata.name, each.status and each.status.exhausted) for each in states.items] == [
        ("pods", False)
    ]
    with pytest.raises(REFUSED):
        await agent.delete(ClusterSubnetState, "pods", names.NAMESPACE)


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
        {"annotations": {names.CONVERSION: "{}"}},
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
