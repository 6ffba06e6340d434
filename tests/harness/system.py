"""The whole system, driven by hand: an API server, replicas of DNC-RC, agents, machines with sandboxes.

No informers, no timers: who looks, who acts, what gets lost and how late it is, the caller decides. So a view
is as stale as its last look, an event is lost by not looking and doubled by looking twice.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node as NodeObject
from subnetes.api.core import Pod
from subnetes.api.meta import Object
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns.errors import CnsError
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal, read
from subnetes.cns.namespaces import is_gone
from subnetes.cns.node import Node
from subnetes.controllers.assembly import Reconcilers
from subnetes.controllers.routes import Routes
from subnetes.controllers.status import timestamp
from subnetes.controllers.term import Term, Wakes, empty_stores
from subnetes.dnc.allocator import Allocator
from subnetes.ipam.pool import Holder
from subnetes.ipam.snapshot import NodePool, Sandbox, Snapshot
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError, NotFound
from subnetes.kube.key import Key, key_of
from subnetes.kube.patches import MergePatch
from subnetes.kube.store import Store
from tests.harness.snapshots import of_dnc, of_journal, of_nncs

SUBNET = "pods"
PODS = "default"
GRACE = 120.0
IFNAME = "eth0"
Part = Literal["node", "nnc", "subnet"]
Outcome = Literal["arrives", "arrives, and the answer is lost", "is lost"]


class Clock:
    """Real time, and what the test added to it."""

    def __init__(self) -> None:
        self.added = 0.0
        self._deleted: dict[str, float] = {}

    def __call__(self) -> float:
        return time.time() + self.added

    def dated(self, nnc: NodeNetworkConfig) -> NodeNetworkConfig:
        """The NNC with its deletion's time by this clock: the API server knows nothing of the time added."""
        metadata = nnc.metadata
        if metadata.deletion_timestamp is None:
            return nnc
        at = self._deleted.setdefault(metadata.uid or "", self())
        shifted = msgspec.structs.replace(metadata, deletion_timestamp=timestamp(at))
        return msgspec.structs.replace(nnc, metadata=shifted)


class Silence:
    """Events that nobody reads."""

    def normal(self, about: Object, reason: str, message: str) -> None: ...
    def warning(self, about: Object, reason: str, message: str) -> None: ...


class Replica:
    """One term of one replica of DNC-RC, with a database of its own."""

    def __init__(self, client: Client, allocator: Allocator, clock: Clock) -> None:
        self.allocator = allocator
        self.leads = True
        self._clock = clock
        self._client = client
        identity = uuid.uuid4().hex[:8]
        term = Term("local", NAMESPACE, identity, lambda: self.leads, clock, node_grace=GRACE)
        self._stores = empty_stores()
        wakes = Wakes(_ignored, _ignored)
        self.reconcilers = Reconcilers(term, client, allocator, self._stores, Silence(), wakes)
        self._routes = Routes(
            NAMESPACE,
            self._stores,
            self.reconcilers.projection,
            node=_ignored,
            nnc=_ignored,
            subnet=_ignored,
        )

    async def take_over(self) -> None:
        await self.reconcilers.adoption.run()
        await self.look()

    async def look(self) -> None:
        """Everything is seen as it is now."""
        nodes = await self._client.list(NodeObject)
        nncs = await self._client.list(NodeNetworkConfig, NAMESPACE)
        subnets = await self._client.list(ClusterSubnet, NAMESPACE)
        _replace(self._stores.nodes, nodes.items, self._routes.node_changed)
        shown = [self._clock.dated(each) for each in nncs.items]
        _replace(self._stores.nncs, shown, self._routes.nnc_changed)
        _replace(self._stores.subnets, subnets.items, self._routes.subnet_changed)

    async def reconcile(self, part: Part, name: str) -> None:
        """One attempt; what the controller would retry is left for the next."""
        with contextlib.suppress(ApiError):
            if part == "node":
                await self.reconcilers.node.reconcile(Key("", name))
            elif part == "nnc":
                await self.reconcilers.nnc.reconcile(Key(NAMESPACE, name))
            else:
                await self.reconcilers.subnet.reconcile(Key(NAMESPACE, SUBNET))


def _ignored(*_: object) -> None: ...


def _replace(store: Store[Any], items: list[Any], changed: Callable[[Any, Any], None]) -> None:
    """Make the store hold these, and tell each difference."""
    found = {key_of(each): each for each in items}
    for key in list(map(key_of, store)):
        if key not in found:
            changed(store.remove(key), None)
    for each in found.values():
        old = store.put(each)
        if old != each:
            changed(old, each)


@dataclass
class Machine:
    """A node's machine: its disk, its sandboxes, its agent. It is its own witness of what lives."""

    name: str
    folder: Path
    clock: Clock
    boot: int = 1
    sandboxes: dict[str, Holder] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = self.folder / self.name / "journal"
        self.start()

    def start(self) -> None:
        journal = Journal(self.journal, self._boot_id)
        self.ipam = Ipam(journal, wait=0.0, namespaces=self, clock=self.clock)
        self.node = Node(self.ipam)

    @property
    def _boot_id(self) -> str:
        return f"boot-{self.boot}"

    def crash(self) -> None:
        """kill -9: what is in the journal is what there is."""
        self.ipam.close()
        self.start()

    def reboot(self) -> None:
        self.boot += 1
        self.sandboxes.clear()
        self.addresses.clear()
        self.crash()

    def inode(self, path: str) -> int | None:
        """The `Namespaces` port: a sandbox's namespace is there while it lives."""
        return 1 + hash(path) % 2**31 if path in self.sandboxes else None

    async def add(self, pod: Pod) -> bool:
        uid = pod.metadata.uid or ""
        name = uuid.uuid4().hex
        holder = Holder(
            container_id=name,
            ifname=IFNAME,
            netns=name,
            pod_namespace=PODS,
            pod_name=pod.metadata.name,
            pod_uid=uid,
        )
        self.sandboxes[name] = holder
        try:
            given = await self.ipam.add(holder)
        except CnsError:
            self.delete(name)
            return False
        self.addresses[name] = [each.address for each in given]
        again = await self.ipam.add(holder)
        assert again == given, "a repeated ADD answers the same"
        return True

    def delete(self, name: str) -> None:
        self.ipam.delete(name, IFNAME)
        self.vanish(name)

    def vanish(self, name: str) -> None:
        self.sandboxes.pop(name, None)
        self.addresses.pop(name, None)

    def sweep(self) -> None:
        self.ipam.sweep([each for each in self.ipam.holders() if is_gone(each, self)])

    def pool(self) -> NodePool:
        stands = of_journal(read(self.journal), self._boot_id)
        return NodePool(self.name, stands, tuple(self.ipam.pool), f"{self.name}'s journal")

    def living(self) -> tuple[Sandbox, ...]:
        return tuple(
            Sandbox(self.name, name, IFNAME, tuple(addresses)) for name, addresses in self.addresses.items()
        )


class System:
    def __init__(self, client: Client, folder: Path, new_allocator: Callable[[Clock], Any]) -> None:
        self.client = client
        self.folder = folder
        self.clock = Clock()
        self.machines: dict[str, Machine] = {}
        self._gone_since: dict[str, float] = {}  # machines that live on without their Node
        self._new_allocator = new_allocator
        self._numbers = iter(range(10**6))

    async def begin(self, space: str) -> None:
        body = {
            "apiVersion": ClusterSubnet.resource.api_version,
            "kind": "ClusterSubnet",
            "metadata": {"name": SUBNET, "namespace": NAMESPACE},
            "spec": {"addressSpace": [space]},
        }
        await self.client.create(body, resource=ClusterSubnet.resource)
        self.replica = await self.new_leader()
        self.former: Replica | None = None
        await self.replica.reconcile("subnet", SUBNET)
        await self.replica.look()

    async def new_leader(self) -> Replica:
        """With an empty database; the one before does not know of it."""
        replica = Replica(self.client, await self._new_allocator(self.clock), self.clock)
        await replica.take_over()
        return replica

    # nodes

    async def join(self, name: str) -> None:
        """The machine, unless it runs, and its Node, unless it is there."""
        if name not in self.machines:
            self.machines[name] = Machine(name, self.folder / uuid.uuid4().hex[:8], self.clock)
        self._gone_since.pop(name, None)
        if await self._get(NodeObject, name, None) is None:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            await self.client.create(body, resource=NodeObject.resource)

    async def delete_node_object(self, name: str) -> None:
        if await self._get(NodeObject, name, None) is not None:
            await self.client.delete(NodeObject, name)
            self._gone_since[name] = self.clock()

    async def die(self, name: str) -> None:
        """The machine is gone, with its disk."""
        machine = self.machines.pop(name, None)
        if machine is not None:
            machine.ipam.close()
        await self.delete_node_object(name)
        self._gone_since.pop(name, None)
        for pod in await self.pods(name):
            await self.client.delete(Pod, pod.metadata.name, PODS, grace_seconds=0)

    async def pass_time(self, seconds: float) -> None:
        """A machine whose Node is gone past the grace is dead by then: that is what the grace is for."""
        for name, since in list(self._gone_since.items()):
            if self.clock() + seconds >= since + GRACE - 1.0:
                await self.die(name)
        self.clock.added += seconds

    # pods

    async def pods(self, node: str) -> list[Pod]:
        return (await self.client.list(Pod, PODS, field_selector=f"spec.nodeName={node}")).items

    async def schedule(self, node: str, count: int) -> None:
        for _ in range(count):
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{next(self._numbers)}", "namespace": PODS},
                "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
            }
            await self.client.create(body, resource=Pod.resource)

    async def forget_pods(self, node: str, count: int) -> None:
        """Their objects go; their sandboxes live until somebody ends them."""
        for pod in (await self.pods(node))[:count]:
            await self.client.delete(Pod, pod.metadata.name, PODS, grace_seconds=0)

    async def start_pods(self, machine: Machine, count: int) -> None:
        started = {each.pod_uid for each in machine.sandboxes.values()}
        waiting = [pod for pod in await self.pods(machine.name) if pod.metadata.uid not in started]
        for pod in waiting[:count]:
            await machine.add(pod)

    async def end_orphans(self, machine: Machine) -> None:
        """What a kubelet does with sandboxes of pods that are gone."""
        uids = {pod.metadata.uid for pod in await self.pods(machine.name)}
        for name in [name for name, each in machine.sandboxes.items() if each.pod_uid not in uids]:
            machine.delete(name)

    # agents

    async def agent_looks(self, machine: Machine) -> None:
        now = self.clock()
        machine.node.observe_pods(await self.pods(machine.name), now)
        machine.node.observe_nnc(await self._get(NodeNetworkConfig, machine.name, NAMESPACE), now)
        for name in machine.node.subnet_names:
            machine.node.observe_subnet(name, await self._get(ClusterSubnet, name, NAMESPACE), now)

    async def agent_plans(self, machine: Machine, outcome: Outcome) -> None:
        """One plan; its request arrives or not, and the agent knows or not."""
        plan = machine.node.plan(self.clock())
        if plan.patch is None:
            self.clock.added += 1.0  # past the debounce
            plan = machine.node.plan(self.clock())
        if plan.patch is None:
            return
        written = None
        if outcome != "is lost":
            with contextlib.suppress(ApiError):
                patch = MergePatch(plan.patch)
                written = await self.client.patch(NodeNetworkConfig, machine.name, patch, NAMESPACE)
        if outcome == "arrives" and written is not None:
            machine.node.wrote(written, self.clock())
        else:
            machine.node.failed(self.clock(), 1.0)

    # all of it

    async def round(self) -> None:
        """Everybody looks and acts once, in the order in which work flows."""
        for name in list(self.machines):
            await self.agent_looks(self.machines[name])
            await self.agent_plans(self.machines[name], "arrives")
        await self.replica.look()
        await self.replica.reconcile("subnet", SUBNET)
        for name in sorted(await self._concerned()):
            await self.replica.reconcile("node", name)
            await self.replica.look()
            await self.replica.reconcile("nnc", name)
        for name in list(self.machines):
            await self.agent_looks(self.machines[name])

    async def _concerned(self) -> set[str]:
        """The nodes that somebody knows of; of those without an NNC, the controller was told by a requeue."""
        shown = {nnc.metadata.name for nnc in (await self.client.list(NodeNetworkConfig, NAMESPACE)).items}
        recorded = {nc.node for nc in await self.replica.allocator.ncs("local")}
        return shown | recorded | set(self.machines)

    async def snapshot(self) -> Snapshot:
        nncs = (await self.client.list(NodeNetworkConfig, NAMESPACE)).items
        return Snapshot(
            dnc=of_dnc(await self.replica.allocator.ncs("local")),
            configs=of_nncs(nncs),
            pools=tuple(machine.pool() for machine in self.machines.values()),
            sandboxes={name: machine.living() for name, machine in self.machines.items()},
        )

    async def _get(self, kind: Any, name: str, namespace: str | None) -> Any:
        try:
            return await self.client.get(kind, name, namespace)
        except NotFound:
            return None
