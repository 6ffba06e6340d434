"""What a kubelet does for a pod's network: a sandbox, the CNI plugin, the pod's status, and its end.

One `Kubelet` a simulated node. A reconciler like all others: it is called with a pod's name, compares the pod
with the sandboxes that are there, and acts. A failed ADD is cleaned up with DEL and tried again with a new
sandbox, as kubelets do.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from subnetes.api.core import Node, Pod
from subnetes.kube.client import Client
from subnetes.kube.controller import Controller, Result
from subnetes.kube.errors import ApiError, Conflict, NotFound
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection
from subnetes.kube.services import run, until
from subnetes.simulation.plugin import Plugin, PluginFailed
from subnetes.simulation.sandbox import Sandbox, Sandboxes

log = logging.getLogger(__name__)

AT_ONCE = 128  # a kubelet works on all its pods at the same time, and 110 is how many it has at most
RETRY = 1.0  # seconds
LOOK = 0.2  # seconds between two looks at whether the agent serves


class Kubelet:
    """A `Service`; its agent answers on the plugin's socket."""

    def __init__(self, client: Client, node: str, plugin: Plugin, sandboxes: Sandboxes) -> None:
        self.node = node
        self.plugin = plugin
        self.sandboxes = sandboxes
        self.ready = asyncio.Event()  # as the plugin's STATUS said last
        self._client = client
        self._stop = asyncio.Event()
        self.pods = Informer(
            f"pods of {node}", Selection(client, Pod, field_selector=f"spec.nodeName={node}")
        )
        self._controller = Controller(f"kubelet of {node}", self.reconcile, workers=AT_ONCE)
        self._controller.follow(self.pods)

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        for sandbox in self.sandboxes.all():
            self._controller.enqueue(sandbox.pod)  # its pod may have gone while nobody looked
        await run(self.pods, self._controller, _Readiness(self._client, self), stop=self._stop, patience=5)

    async def reconcile(self, key: Key) -> Result | None:
        pod = self.pods.store.get(key)
        try:
            return await self._settle(key, pod)
        except PluginFailed as problem:
            log.info("%s: %s: retried in %g s: %s", self.node, key, RETRY, problem)
            return Result(requeue_after=RETRY)

    async def _settle(self, key: Key, pod: Pod | None) -> Result | None:
        for sandbox in self.sandboxes.of(key):
            if pod is None or not needs_sandbox(pod) or sandbox.pod_uid != pod.metadata.uid:
                await self._end(sandbox)
        if pod is None:
            return None
        if pod.metadata.deletion_timestamp:
            await self._confirm_deletion(key, pod)
        elif pod.spec.host_network:
            await self._say_running(key, pod, [])
        elif needs_sandbox(pod):
            await self._say_running(key, pod, (await self._sandbox(key, pod)).addresses)
        return None

    async def _sandbox(self, key: Key, pod: Pod) -> Sandbox:
        """The pod's sandbox, made if there is none with addresses."""
        for sandbox in self.sandboxes.of(key):
            if sandbox.addresses:
                return sandbox
            await self._end(sandbox)
        sandbox = self.sandboxes.make(key, pod.metadata.uid or "")
        try:
            addresses = await self.plugin.add(sandbox)
        except PluginFailed:
            await self._end(sandbox)
            raise
        return self.sandboxes.keep(msgspec.structs.replace(sandbox, addresses=addresses))

    async def _end(self, sandbox: Sandbox) -> None:
        await self.plugin.delete(sandbox)
        self.sandboxes.end(sandbox)

    async def _say_running(self, key: Key, pod: Pod, addresses: list[str]) -> None:
        known = [each.ip for each in pod.status.pod_ips or []]
        if pod.status.phase == "Running" and known == addresses:
            return
        try:
            await self._client.patch(
                Pod, key.name, MergePatch(running(pod, addresses)), key.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            log.info("%s: %s is no longer the pod that was started", self.node, key)

    async def _confirm_deletion(self, key: Key, pod: Pod) -> None:
        try:
            await self._client.delete(Pod, key.name, key.namespace, uid=pod.metadata.uid, grace_seconds=0)
        except (NotFound, Conflict):
            log.info("%s: %s is gone already", self.node, key)


class _Readiness:
    """The Node's Ready condition, from the plugin's STATUS; written when it changes. A `Service`."""

    def __init__(self, client: Client, kubelet: Kubelet) -> None:
        self._client = client
        self._kubelet = kubelet
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await until(self._stop, self._follow())

    async def _follow(self) -> None:
        said: bool | None = None
        while True:
            ready, why = await self._look()
            self._note(ready)
            if ready != said and await self._say(ready, why):
                said = ready
            await asyncio.sleep(LOOK if not ready else RETRY)

    def _note(self, ready: bool) -> None:
        if ready:
            self._kubelet.ready.set()
        else:
            self._kubelet.ready.clear()

    async def _look(self) -> tuple[bool, str]:
        try:
            await self._kubelet.plugin.status()
        except PluginFailed as problem:
            return False, str(problem)
        return True, "the network plugin is ready"

    async def _say(self, ready: bool, why: str) -> bool:
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "KubeletReady" if ready else "KubeletNotReady",
            "message": why,
            "lastTransitionTime": _timestamp(),
        }
        patch = MergePatch({"status": {"conditions": [condition]}})
        try:
            await self._client.patch(Node, self._kubelet.node, patch, subresource="status")
        except ApiError as problem:
            log.info("%s: %s", self._kubelet.node, problem)
            return False
        return True


def needs_sandbox(pod: Pod) -> bool:
    finished = pod.status.phase in ("Succeeded", "Failed")
    return not (finished or pod.spec.host_network or pod.metadata.deletion_timestamp)


def running(pod: Pod, addresses: list[str]) -> dict[str, Any]:
    """The status of a pod that runs; the uid makes a write to its successor a Conflict."""
    status: dict[str, Any] = {"phase": "Running", "conditions": [_ready()]}
    if addresses:
        status |= {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _ready() -> dict[str, str]:
    return {"type": "Ready", "status": "True", "lastTransitionTime": _timestamp()}


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
