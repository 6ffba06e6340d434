"""What was written to NNCs, as a raw watch sees it: every write is one event, none is merged.

A step of the generation is a spec write (CNS alone writes spec); a changed status is a status write (DNC-RC);
the rest is metadata.
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass

from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.client import Client
from subnetes.kube.codec import Bookmark
from subnetes.kube.services import until


@dataclass(frozen=True)
class Write:
    node: str
    part: str  # created, spec, status, metadata or deleted
    object: NodeNetworkConfig


class Writes:
    """All writes since it was started; a `Service`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = asyncio.Event()
        self._last: dict[str, NodeNetworkConfig] = {}
        self.started = asyncio.Event()
        self.all: list[Write] = []

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await until(self._stop, self._follow())

    def of(self, *nodes: str) -> list[Write]:
        return [each for each in self.all if each.node in nodes]

    def parts(self, *nodes: str) -> list[str]:
        return [each.part for each in self.of(*nodes)]

    def forget(self) -> None:
        """Count anew from here."""
        self.all.clear()

    async def _follow(self) -> None:
        listing = await self._client.list(NodeNetworkConfig, NAMESPACE)
        self._last = {each.metadata.name: each for each in listing.items}
        events = self._client.watch(
            NodeNetworkConfig, NAMESPACE, resource_version=listing.resource_version, timeout_seconds=600
        )
        self.started.set()
        async with aclosing(events):
            async for event in events:
                if not isinstance(event, Bookmark):
                    self._saw(event.type, event.object)
        raise RuntimeError("the watch that counts ended before the story did")

    def _saw(self, kind: str, new: NodeNetworkConfig) -> None:
        name = new.metadata.name
        old = self._last.pop(name, None)
        if kind != "DELETED":
            self._last[name] = new
        self.all.append(Write(name, _part(kind, old, new), new))


def _part(kind: str, old: NodeNetworkConfig | None, new: NodeNetworkConfig) -> str:
    if kind == "DELETED":
        return "deleted"
    if old is None:
        return "created"
    if old.spec != new.spec:
        return "spec"
    return "status" if old.status != new.status else "metadata"


def double_grants(writes: Iterable[Write]) -> list[str]:
    """Addresses that stood in two NNCs' statuses at one time, or under two ids without a release between."""
    now: dict[str, dict[str, str]] = {}  # node → address → id
    found = []
    for write in writes:
        mine = {} if write.part == "deleted" else _granted(write.object)
        for address in mine:
            others = [node for node, held in now.items() if node != write.node and address in held]
            found += [f"{address}: {write.node} and {node}" for node in others]
        now[write.node] = mine
    return found


def _granted(nnc: NodeNetworkConfig) -> dict[str, str]:
    containers = (nnc.status.network_containers if nnc.status else None) or []
    held = {ip.address: ip.id for nc in containers for ip in nc.secondary_ips or []}
    return held | {nc.primary_ip: nc.id for nc in containers if nc.primary_ip}
