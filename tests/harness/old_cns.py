"""A v1alpha CNS as it runs in clusters today, on plain HTTP: it must not notice that the world has changed.

It follows its one NNC by field selector, acts only on what its Node controls, and writes its spec by
server-side apply with force. Generation 1 ignores updates in which metadata.generation changed and moves one
batch at a tick; generation 2 computes its target at each event. Pods are numbers: `want(12)`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

from tests.harness.clients import eventually
from tests.harness.old_pool import FirstMonitor, Monitor, Pool, SecondMonitor, Spec
from tests.harness.wire import Reply, WatchEnded, Wire

log = logging.getLogger(__name__)

GROUP = "/apis/acn.azure.com"
NNCS = f"{GROUP}/v1alpha/namespaces/kube-system/nodenetworkconfigs"
STATES = f"{GROUP}/v1alpha1/namespaces/kube-system/clustersubnetstates"
MANAGER = "azure-cns"
MONITORS: dict[int, Callable[[], Monitor]] = {1: FirstMonitor, 2: SecondMonitor}


@dataclass(frozen=True)
class Node:
    name: str
    uid: str
    address: str


class OldCns:
    """An async context manager: it runs inside the block.

    `writes`: "apply" as Azure's newer clients do, "put" (read, change the spec, PUT) as its older ones, or
    "merge" for a server without server-side apply.
    """

    def __init__(
        self, wire: Wire, node: Node, generation: int, *, writes: str = "apply", tick: float = 0.05
    ) -> None:
        self.node, self.generation = node, generation
        self.pool, self.monitor = Pool(node.address), MONITORS[generation]()
        self.programs = True  # whether the host follows the NCs' versions
        self.written: list[Spec] = []
        self.looks = 0  # how often the monitor has looked at the pool
        self.failures: list[str] = []
        self._wire, self.writes, self._tick = wire, writes, tick
        self._nnc: dict[str, Any] | None = None
        self._exhausted: dict[str, bool] = {}  # by subnet
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(each)
            for each in (
                self._follow(NNCS, self._saw_nnc, fieldSelector=f"metadata.name={self.node.name}"),
                self._follow(STATES, self._saw_state),
                self._monitoring(),
            )
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # pods

    def want(self, pods: int) -> None:
        self.pool.want(pods)
        self._due.set()

    @property
    def addresses(self) -> list[str]:
        """Those that pods have."""
        return list(self.pool.assigned.values())

    async def running(self, pods: int, patience: float = 60.0) -> None:
        """Until so many pods have an address, and no other waits."""
        await eventually(lambda: self._sound() and len(self.addresses) == pods, patience)
        assert not self.pool.waiting

    async def until(self, question: Callable[[], bool], patience: float = 60.0) -> None:
        await eventually(lambda: self._sound() and question(), patience)

    def _sound(self) -> bool:
        assert not self.pool.faults, f"{self.node.name}: {self.pool.faults}"
        assert not self.failures, f"{self.node.name}: {self.failures}"
        for task in self._tasks:
            if task.done():
                task.result()
        return True

    # watching, as an informer does

    async def _follow(self, path: str, saw: Callable[[dict[str, Any], bool], None], **query: str) -> None:
        while True:
            listed = await self._wire.get(path, **query)
            if listed.code != 200:
                if listed.code not in (404, 429):
                    self.failures.append(f"list {path}: {listed.code} {listed.body}")
                await asyncio.sleep(self._tick)
                continue
            for item in listed.body["items"]:
                saw(item, False)
            with suppress(WatchEnded, aiohttp.ClientError):
                await self._watch(path, saw, listed.body["metadata"]["resourceVersion"], query)

    async def _watch(
        self,
        path: str,
        saw: Callable[[dict[str, Any], bool], None],
        version: str,
        query: dict[str, str],
    ) -> None:
        """From the last version seen, again and again, until the server no longer has it."""
        while True:
            try:
                async with self._wire.watch(
                    path, resourceVersion=version, allowWatchBookmarks=True, timeoutSeconds=300, **query
                ) as events:
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            saw(event["object"], event["type"] == "DELETED")
            except WatchEnded as ended:
                if ended.code not in (0, 200):
                    raise

    def _saw_nnc(self, nnc: dict[str, Any], deleted: bool) -> None:
        before, self._nnc = self._nnc, None if deleted else nnc
        if deleted or not self._is_mine(nnc) or nnc["metadata"].get("deletionTimestamp"):
            return
        stepped = before is not None and before["metadata"]["generation"] != nnc["metadata"]["generation"]
        if stepped and not self.monitor.follows_generations:
            return
        assert nnc["apiVersion"] == "acn.azure.com/v1alpha", nnc["apiVersion"]
        mine = self.pool.ingest(nnc.get("status", {}).get("networkContainers") or [])
        if mine:
            self.monitor.saw(nnc)
            self._due.set()

    def _is_mine(self, nnc: dict[str, Any]) -> bool:
        owners = nnc["metadata"].get("ownerReferences") or []
        return any(each.get("controller") and each["uid"] == self.node.uid for each in owners)

    def _saw_state(self, state: dict[str, Any], deleted: bool) -> None:
        status = state.get("status") or {}
        if status and not deleted:
            assert isinstance(status["exhausted"], bool)
            assert isinstance(status["timestamp"], str)
            self._exhausted[state["metadata"]["name"]] = status["exhausted"]
            self._due.set()

    def _is_exhausted(self) -> bool:
        containers = (self._nnc or {}).get("status", {}).get("networkContainers") or []
        return any(self._exhausted.get(nc.get("subnetName", "")) for nc in containers)

    # the pool

    async def _monitoring(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._tick if self.generation == 1 else 1.0):
                    await self._due.wait()  # not wait_for: of Python 3.11, it may swallow a cancellation
            self._due.clear()
            if self.programs:
                self.pool.program()
            self.monitor.exhausted = self._is_exhausted()
            spec = self.monitor.look(self.pool)
            self.looks += 1
            if spec is not None:
                await self._write(spec)

    async def _write(self, spec: Spec) -> None:
        reply = await self._send(spec)
        while reply.code == 409 and self.writes == "put":
            reply = await self._send(spec)  # it reads again, and says the same
        if reply.code == 200:
            self.written.append(spec)
            self.monitor.wrote(spec)
            self._due.set()
        else:
            self.failures.append(f"{self.writes}: {reply.code} {reply.body}")

    async def _send(self, spec: Spec) -> Reply:
        path = f"{NNCS}/{self.node.name}"
        stated = spec if spec["ipsNotInUse"] else {"requestedIPCount": spec["requestedIPCount"]}
        if self.writes == "apply":
            return await self._wire.apply(path, _applied(self.node.name, stated), MANAGER)
        if self.writes == "merge":
            return await self._wire.merge(path, {"spec": spec}, fieldManager=MANAGER)
        read = (await self._wire.get(path)).ok()
        return await self._wire.put(path, read | {"spec": stated}, fieldManager=MANAGER)


def _applied(name: str, spec: Spec) -> dict[str, Any]:
    """With the empty status and time that Go's encoder adds to every object."""
    return {
        "apiVersion": "acn.azure.com/v1alpha",
        "kind": "NodeNetworkConfig",
        "metadata": {"name": name, "namespace": "kube-system", "creationTimestamp": None},
        "spec": spec,
        "status": {"assignedIPCount": 0, "scaler": {}},
    }
