"""A cluster on the embedded API server, and replicas of DNC-RC that a test moves step by step.

A `Replica` has the real reconcilers and a real allocator, and instead of informers a copy of the cluster that
is taken when the test says so: whatever a race can do, a test can do in one line.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.core import Node, Pod
from subnetes.api.crd import crds
from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.network import Network
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.apiserver.server import Config, Server
from subnetes.controllers.assembly import Reconcilers
from subnetes.controllers.process import in_memory
from subnetes.controllers.status import containers_of
from subnetes.controllers.term import Term, Wakes, empty_stores
from subnetes.dnc.allocator import Allocator
from subnetes.kube.client import Client
from subnetes.kube.controller import Result
from subnetes.kube.errors import NotFound
from subnetes.kube.key import Key, key_of
from subnetes.kube.patches import MergePatch, Patch
from subnetes.kube.store import Store
from tests.harness.clients import client_of

NAMESPACE = names.NAMESPACE


class Killed(Exception):
    """The replica's process ended here."""


class Counted:
    """The client, with its writes counted, and a moment at which the process dies."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.writes: Counter[str] = Counter()
        self.dies_after: int | None = None

    def _write(self, what: str) -> None:
        self.writes[what] += 1
        if self.dies_after is not None:
            if self.dies_after == 0:
                raise Killed
            self.dies_after -= 1

    async def get(self, *arguments: Any) -> Any:
        return await self._client.get(*arguments)

    async def list(self, *arguments: Any, **options: Any) -> Any:
        return await self._client.list(*arguments, **options)

    async def create(self, obj: Any) -> Any:
        self._write(f"create {obj.kind}")
        return await self._client.create(obj)

    async def update(self, obj: Any) -> Any:
        self._write(f"update {obj.kind}")
        return await self._client.update(obj)

    async def update_status(self, obj: Any) -> Any:
        self._write(f"status {obj.kind}")
        return await self._client.update_status(obj)

    async def patch(self, kind: Any, name: str, patch: Patch, namespace: str | None = None) -> Any:
        self._write(f"patch {kind.resource.kind}")
        return await self._client.patch(kind, name, patch, namespace)

    async def delete(
        self, kind: Any, name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> None:
        self._write(f"delete {kind.resource.kind}")
        await self._client.delete(kind, name, namespace, uid=uid)


class Told:
    """The events, in order: (reason, object, message)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def normal(self, about: Object, reason: str, message: str) -> None:
        self.events.append((reason, about.metadata.name, message))

    def warning(self, about: Object, reason: str, message: str) -> None:
        self.events.append((reason, about.metadata.name, message))

    def count(self, reason: str, about: str | None = None) -> int:
        return sum(1 for each in self.events if each[0] == reason and about in (None, each[1]))


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


class Replica:
    def __init__(self, client: Client, allocator: Allocator, clock: Clock, grace: float = 120.0) -> None:
        self.api, self.allocator, self.told = Counted(client), allocator, Told()
        self.stores = empty_stores()
        self.leads = True
        self.woken: list[str] = []
        self.wants: dict[str, Result | None] = {}
        term = Term(
            "local", NAMESPACE, f"replica-{uuid.uuid4().hex[:6]}", lambda: self.leads, clock.now, grace
        )
        wakes = Wakes(self.woken.append, lambda _name: None)
        self.reconcilers = Reconcilers(term, self.api, allocator, self.stores, self.told, wakes)

    async def refresh(self) -> str:
        """Take a copy of the cluster; the answer changes with it."""
        await self._copy(Node, None, self.stores.nodes)
        await self._copy(ClusterSubnet, NAMESPACE, self.stores.subnets)
        await self._copy(Network, None, self.stores.networks)
        changes = await self._copy(NodeNetworkConfig, NAMESPACE, self.stores.nncs)
        for old, new in changes:
            self.reconcilers.projection.changed(old, new)
        return str(
            [(key_of(each), each.metadata.resource_version) for store in self._all() for each in store]
        )

    def _all(self) -> list[Store[Any]]:
        return [self.stores.nodes, self.stores.nncs, self.stores.subnets, self.stores.networks]

    async def _copy(self, kind: Any, namespace: str | None, store: Store[Any]) -> list[tuple[Any, Any]]:
        found = {key_of(each): each for each in (await self.api.list(kind, namespace)).items}
        gone = set(store.keys()) - set(found)
        changes: list[tuple[Any, Any]] = [(store.remove(key), None) for key in gone]
        return changes + [(store.put(each), each) for each in found.values()]

    async def nnc(self, node: str) -> Result | None:
        """One reconcile of the node's NNC, on the copy as it is."""
        result = await self.reconcilers.nnc.reconcile(Key(NAMESPACE, node))
        self.wants[node] = result
        return result

    async def subnet(self, name: str) -> Result | None:
        return await self.reconcilers.subnet.reconcile(Key(NAMESPACE, name))

    async def take_over(self) -> set[str]:
        return await self.reconcilers.adoption.run()

    async def settle(self) -> None:
        """Reconcile everything until nothing changes any more."""
        gone: set[str] = set()
        for _ in range(20):
            before = await self.refresh()
            for subnet in self.stores.subnets:
                await self.subnet(subnet.metadata.name)
            for node in self.stores.nodes:
                await self.reconcilers.node.reconcile(key_of(node))
            nodes = {each.metadata.name for each in self.stores.nncs}
            gone |= nodes
            for name in sorted(nodes | gone):
                await self.nnc(name)
            if await self.refresh() == before:
                return
        raise AssertionError("it does not settle")


class World:
    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.clock = Clock()
        self._allocators: list[Allocator] = []

    async def replica(
        self, grace: float = 120.0, *, take_over: bool = True, allocator: Allocator | None = None
    ) -> Replica:
        """One with an empty database of its own, unless one is given."""
        if allocator is None:
            allocator = await in_memory()
            self._allocators.append(allocator)
        made = Replica(self.client, allocator, self.clock, grace)
        if take_over:
            await made.take_over()
        return made

    async def close(self) -> None:
        for each in self._allocators:
            await each.close()

    async def node(self, name: str, **metadata: Any) -> None:
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, **metadata},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]},
            },
            resource=Node.resource,
        )

    async def pod(self, name: str, node: str, address: str, phase: str) -> None:
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            },
            resource=Pod.resource,
        )
        status = MergePatch({"status": {"phase": phase, "podIP": address}})
        await self.client.patch(Pod, name, status, "default", subresource="status")

    async def delete_node(self, name: str) -> None:
        await self.client.delete(Node, name)

    async def subnet(self, name: str = "pods", space: str = "10.1.0.0/24", **spec: Any) -> ClusterSubnet:
        return await self.client.create(
            ClusterSubnet(
                metadata=ObjectMeta(name=name, namespace=NAMESPACE),
                spec=ClusterSubnetSpec(address_space=[space], **spec),
            )
        )

    async def change_subnet(self, name: str, spec: dict[str, Any]) -> None:
        await self.client.patch(ClusterSubnet, name, MergePatch({"spec": spec}), NAMESPACE)

    async def get_subnet(self, name: str = "pods") -> ClusterSubnet:
        return await self.client.get(ClusterSubnet, name, NAMESPACE)

    async def get(self, node: str) -> NodeNetworkConfig:
        return await self.client.get(NodeNetworkConfig, node, NAMESPACE)

    async def exists(self, node: str) -> bool:
        try:
            await self.get(node)
        except NotFound:
            return False
        return True

    async def nc(self, node: str) -> NetworkContainer:
        (found,) = containers_of(await self.get(node))
        return found

    async def ask(self, node: str, count: int, released: list[str] | None = None) -> None:
        """As the node's agent would, of its only network container."""
        nc = await self.nc(node)
        await self.ask_raw(node, {nc.id: count}, released)

    async def ask_raw(self, node: str, wanted: dict[str, int], released: list[str] | None = None) -> None:
        spec = {"secondaryIPs": wanted, "releasedIPs": released or []}
        await self.client.patch(NodeNetworkConfig, node, MergePatch({"spec": spec}), NAMESPACE)

    async def addresses(self) -> list[str]:
        """Every address that some NNC shows, primary or secondary, as often as it is shown."""
        found = []
        for nnc in (await self.client.list(NodeNetworkConfig, NAMESPACE)).items:
            for nc in containers_of(nnc):
                found += [nc.primary_ip, *(ip.address for ip in nc.secondary_ips or ())]
        return found


def foreign(nc: str, primary: str, *secondary: tuple[str, str]) -> NetworkContainer:
    """As another control plane writes it."""
    return NetworkContainer(
        assignment_mode="dynamic",
        default_gateway="10.1.0.1",
        id=nc,
        node_ip="192.0.2.7",
        primary_ip=primary,
        resource_group_id="group-1",
        subscription_id="sub-1",
        secondary_ips=[SecondaryIP(id=name, address=address) for name, address in secondary],
        subnet_address_space="10.1.0.0/24",
        subnet_name="pods",
        type="vnet",
        version=7,
        vnet_id="vnet-of-old",
    )


async def planted(world: World, node: str, nc: NetworkContainer) -> None:
    await world.node(node)
    made = await world.client.create(NodeNetworkConfig(metadata=ObjectMeta(name=node, namespace=NAMESPACE)))
    made.status = NodeNetworkConfigStatus(network_containers=[nc])
    await world.client.update_status(made)


def ids(nc: NetworkContainer) -> list[str]:
    return [ip.id for ip in nc.secondary_ips or ()]


def condition(subnet: ClusterSubnet, kind: str) -> tuple[str, str]:
    """The status and the reason of a condition."""
    for each in (subnet.status.conditions if subnet.status else None) or ():
        if each.type == kind:
            return each.status, each.reason
    return "", ""


@asynccontextmanager
async def new_world(kinds: list[dict[str, Any]] | None = None) -> AsyncIterator[World]:
    async with Server(Config(data=None, crds=kinds or crds())) as server, client_of(server) as client:
        world = World(client, server.kubeconfig)
        try:
            yield world
        finally:
            await world.close()
