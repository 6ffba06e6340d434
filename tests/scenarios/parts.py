"""What a world is made of: parts that can be crashed, a node's halves, and what is asked of an API server."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.cns import journal
from subnetes.cns.agent import JOURNAL, Agent
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.ipam.snapshot import NodePool, Sandbox
from subnetes.simulation.node import SimulatedNode
from subnetes.simulation.plugin import IFNAME
from tests.harness.requests import Counting
from tests.harness.snapshots import of_journal

PODS = "default"


class ApiServer(Counting, Protocol):
    """Where it is, and how to enter."""

    kubeconfig: Path


@dataclass
class Running:
    """A part that runs as a task; to crash it is to cancel it, without asking it to stop."""

    service: Any
    task: "asyncio.Task[None]" = field(init=False)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self.service.run())

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        self.service.stop()
        await asyncio.wait([self.task], timeout=10)
        await self.crash()


@dataclass
class LivingNode:
    """A simulated node, and which of its parts run."""

    node: SimulatedNode
    agent: Agent
    agent_runs: Running
    kubelet_runs: Running | None

    @property
    def name(self) -> str:
        return self.node.machine.name

    def pool(self) -> NodePool:
        """As its journal says, and as the agent has it in memory."""
        path = self.node.config.state / JOURNAL
        stands = of_journal(journal.read(path), self.node.config.boot_id)
        return NodePool(self.name, stands, tuple(self.agent.ipam.pool), str(path))

    def sandboxes(self) -> tuple[Sandbox, ...]:
        """Those that live, by their kubelet's word."""
        found = self.node.kubelet.sandboxes.all()
        return tuple(Sandbox(self.name, each.id, IFNAME, tuple(each.addresses)) for each in found)


class Exhaustion:
    """A ClusterSubnet's flag over time."""

    def __init__(self, name: str, now: bool) -> None:
        self.name = name
        self.seen: list[bool] = []
        self._last = now

    def saw(self, _: ClusterSubnet | None, new: ClusterSubnet | None) -> None:
        if new is None or new.metadata.name != self.name or new.status is None:
            return
        if bool(new.status.exhausted) != self._last:
            self._last = bool(new.status.exhausted)
            self.seen.append(self._last)


async def new_allocator() -> Allocator:
    return SqlAllocator(await open_sqlite(":memory:"))


def pod_manifest(name: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PODS},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }
