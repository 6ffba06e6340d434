"""The node agent put together: informers tell `Node`, `Node` plans, the agent writes; its sockets are open.

Whoever runs a node builds one: `subnetes agent`, and all that simulates nodes. It watches its own NNC, the
ClusterSubnets that its network containers name, and the pods of its node, and nothing else.
"""

import asyncio
import fcntl
import importlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import ObjectReference, Pod
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns import endpoint
from subnetes.cns.demand import uid_of
from subnetes.cns.errors import JournalError
from subnetes.cns.figures import CountsCollector, Latency, figures
from subnetes.cns.ipam import DEFAULT_WAIT, Ipam
from subnetes.cns.journal import Journal, this_boot
from subnetes.cns.metrics import Metrics, PoolCollector
from subnetes.cns.monitor import Timing
from subnetes.cns.namespaces import HostNamespaces, Namespaces
from subnetes.cns.node import Node
from subnetes.cns.scalers import is_exhausted
from subnetes.cns.subnets import SubnetWatch
from subnetes.cns.sweep import Sandboxes, Sweep, UnknownSandboxes
from subnetes.ipam.pool import Holder
from subnetes.kube import metrics as kube_metrics
from subnetes.kube import services
from subnetes.kube.backoff import Backoff
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError, NotFound
from subnetes.kube.events import Recorder
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection

log = logging.getLogger(__name__)

JOURNAL = "journal"
TRUST_JOURNAL_AFTER = 2.0  # seconds without an NNC, after which an agent that was only restarted serves again
COMPONENT = "subnetes-cns"
_RETRY = Backoff(first=0.2, cap=30.0)
_AT_ONCE = 0.02  # seconds in which changes are gathered before they are looked at


@dataclass(frozen=True)
class AgentConfig:
    """`listen`: health, metrics and debug routes; `azure`: Azure's contract; both host:port, or None."""

    node: str
    socket: Path
    state: Path
    wait: float = DEFAULT_WAIT
    quiet: float = 0.05
    at_most: float = 0.5
    shrink_after: float = 60.0
    sweep_every: float = 30.0
    listen: str | None = None
    azure: str | None = None
    boot_id: str = field(default_factory=this_boot)

    @property
    def timing(self) -> Timing:
        return Timing(quiet=self.quiet, at_most=self.at_most, shrink_after=self.shrink_after)


class Agent:
    """A `Service`. It has read its journal when it is made, so that a bad one is an error at once."""

    def __init__(
        self,
        config: AgentConfig,
        client: Client,
        registry: CollectorRegistry | None = None,
        *,
        namespaces: Namespaces | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self.config = config
        self.registry = registry if registry is not None else CollectorRegistry()
        self._client = client
        namespaces = namespaces or HostNamespaces()
        self._lock = _only_user(config.state)
        try:
            journal = Journal(config.state / JOURNAL, config.boot_id)
            self.ipam = Ipam(journal, wait=config.wait, namespaces=namespaces)
        except BaseException:
            os.close(self._lock)
            raise
        self.node = Node(self.ipam, config.timing)
        self.metrics = Metrics(self.registry)
        self._latency = Latency(self.node, self.metrics)
        self._kube_metrics = kube_metrics.Metrics(self.registry)
        self.registry.register(PoolCollector(lambda: figures(self.node)))
        self.registry.register(CountsCollector(self.ipam))
        self._recorder = Recorder(client, COMPONENT, config.node, metrics=self._kube_metrics)
        self._nncs = self._nnc_informer()
        self._pods = self._pod_informer()
        self._subnets = SubnetWatch(client, self._subnet_told, self._kube_metrics)
        self._sweep = Sweep(namespaces, sandboxes or UnknownSandboxes(), self._pod_exists)
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._serving = asyncio.Event()
        self._failures = 0
        self.ipam.changed = self._wake.set
        self.ipam.starved = self._tell_starved

    async def serving(self) -> None:
        """Return once the sockets answer; whether they have IPs to give is `ipam.ready`'s to say."""
        await self._serving.wait()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        try:
            async with self._doors():
                self._serving.set()
                parts = (_Task("planning", self._plan), _Task("sweeping", self._sweep_for_ever))
                await services.run(
                    self._recorder, self._nncs, self._pods, self._subnets, *parts, stop=self._stop
                )
        finally:
            self._serving.clear()
            self.ipam.close()
            os.close(self._lock)

    @asynccontextmanager
    async def _doors(self) -> AsyncIterator[None]:
        """Open from the first moment: STATUS is told why the agent is not ready, and ADD waits."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(endpoint.serve(self.ipam, self.config.socket, self.metrics))
            # Only where they are asked for: an HTTP server is a good part of what the agent weighs.
            if self.config.listen:
                web: Any = importlib.import_module("subnetes.cns.web")
                await stack.enter_async_context(web.serve(self, self.config.listen))
            if self.config.azure:
                azure: Any = importlib.import_module("subnetes.cns.azure")
                await stack.enter_async_context(azure.serve(self.ipam, self.config.azure, self.metrics))
            yield

    def _nnc_informer(self) -> Informer[NodeNetworkConfig]:
        own = Selection(
            self._client, NodeNetworkConfig, NAMESPACE, field_selector=f"metadata.name={self.config.node}"
        )
        informer = Informer("nodenetworkconfig", own, metrics=self._kube_metrics)
        informer.on_change(self._nnc_changed)
        return informer

    def _pod_informer(self) -> Informer[Pod]:
        own = Selection(self._client, Pod, field_selector=f"spec.nodeName={self.config.node}")
        informer = Informer("pods", own, metrics=self._kube_metrics)
        informer.on_change(lambda _old, _new: self._wake.set())
        return informer

    def _nnc_changed(self, _old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        self.node.observe_nnc(new, _now())
        self._latency.observed(_now())
        self._wake.set()

    def _subnet_told(self, name: str, subnet: ClusterSubnet | None) -> None:
        self.node.observe_subnet(name, subnet, _now())
        for nc in self.ipam.containers:
            if nc.subnet == name:
                self.metrics.exhaustion(name, nc.cidr, is_exhausted(subnet), nc.network)
        self._wake.set()

    async def _plan(self) -> None:
        started = _now()
        syncing = asyncio.create_task(self._wake_when_synced())
        try:
            while True:
                self._wake.clear()
                self._look(started)
                plan = self.node.plan(_now())
                self._subnets.want(self.node.subnet_names)
                if plan.patch is not None:
                    await self._write(plan.patch)
                else:
                    await self._rest(min(plan.wake_at, self._trusts_journal_at(started)))
        finally:
            syncing.cancel()

    def _look(self, started: float) -> None:
        if self._pods.has_synced():
            self.node.observe_pods(self._pods.store, _now())
        if self._has_no_nnc():
            self.node.observe_nnc(None, _now())
        if _now() >= self._trusts_journal_at(started):
            log.warning("the NodeNetworkConfig cannot be read: serving from the journal of this boot")
            self.ipam.open()

    def _has_no_nnc(self) -> bool:
        """Surely, and not only because it could not be read."""
        own = Key(NAMESPACE, self.config.node)
        return self._nncs.has_synced() and self._nncs.store.get(own) is None

    def _trusts_journal_at(self, started: float) -> float:
        waits = self.ipam.same_boot and not self.ipam.is_open and not self._has_no_nnc()
        return started + TRUST_JOURNAL_AFTER if waits else float("inf")

    async def _wake_when_synced(self) -> None:
        for informer in (self._nncs, self._pods):
            await informer.synced()
            self._wake.set()

    async def _rest(self, wake_at: float) -> None:
        """Until something changes or the time has come; a burst of changes is one."""
        try:
            async with asyncio.timeout_at(wake_at if wake_at != float("inf") else None):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_AT_ONCE)

    async def _write(self, patch: dict[str, Any]) -> None:
        try:
            nnc = await self._client.patch(NodeNetworkConfig, self.config.node, MergePatch(patch), NAMESPACE)
        except ApiError as problem:
            self._failures += 1
            delay = max(_RETRY.draw(self._failures), problem.retry_after or 0.0)
            log.warning("the request for IPs is repeated in %.1f s: %s", delay, problem)
            self.node.failed(_now(), delay)
        else:
            self._failures = 0
            self.node.wrote(nnc, _now())
            self._latency.wrote(_now())

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_every)
            lost = await self._sweep.run(self.ipam.holders(), _now())
            try:
                released = self.ipam.sweep(lost)
            except JournalError as problem:
                log.error("what is lost is not released now: %s", problem)
                continue
            if released:
                keys = [each.key for each in lost]
                log.warning("%d attachments were released whose sandboxes are gone: %s", released, keys)

    async def _pod_exists(self, holder: Holder) -> bool | None:
        """By the quorum, not by the informer. A pod of the same name with another uid is another pod."""
        try:
            pod = await self._client.get(Pod, holder.pod_name, holder.pod_namespace)
        except NotFound:
            return False
        except ApiError:
            return None
        return not holder.pod_uid or holder.pod_uid in (uid_of(pod), pod.metadata.uid)

    def _tell_starved(self, holder: Holder, why: str) -> None:
        if holder.pod_name:
            pod = ObjectReference(
                api_version="v1",
                kind="Pod",
                namespace=holder.pod_namespace,
                name=holder.pod_name,
                uid=holder.pod_uid,
            )
            self._recorder.warning(pod, "NoIPAvailable", why)


class _Task:
    """Work that never ends, as a `Service`."""

    def __init__(self, name: str, work: Any) -> None:
        self.name = name
        self._work = work
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await services.until(self._stop, self._work())


def _now() -> float:
    return asyncio.get_running_loop().time()


def _only_user(state: Path) -> int:
    """Lock the folder: two agents on one journal would hand out every IP twice."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise JournalError(f"another agent runs on {state}: stop it, or choose another --state-dir") from None
    return lock
