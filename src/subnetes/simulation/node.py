"""A simulated node: a Node object, a real agent with its own socket and journal, and a kubelet.

`subnetes up` runs a few as services; the scenario tests also crash the agent alone, and start another on the
same state. Everything that a machine would keep is in the node's folder.
"""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subnetes.api.core import Node
from subnetes.cns.agent import Agent, AgentConfig
from subnetes.cns.endpoint import LONGEST_PATH
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists
from subnetes.kube.patches import MergePatch
from subnetes.kube.services import run
from subnetes.simulation.kubelet import Kubelet
from subnetes.simulation.plugin import Plugin
from subnetes.simulation.sandbox import Sandboxes

SIMULATED = "simulation.subnetes.io/node"
"""Label of the Nodes that have no machine, so that nobody's real nodes are mistaken for them."""


class PathTooLong(Exception):
    """The node's folder is too deep for a Unix socket."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a simulated node is called, where it is and where it keeps its state."""

    name: str
    folder: Path
    address: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        path = self.folder / "cns.sock"
        if len(bytes(path)) > LONGEST_PATH:
            raise PathTooLong(f"{path} is longer than the {LONGEST_PATH} bytes that a socket may have")
        return path

    def manifest(self) -> dict[str, Any]:
        labels = {"kubernetes.io/hostname": self.name, SIMULATED: "true"} | self.labels
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": self.annotations},
            "status": {
                "addresses": [{"type": "InternalIP", "address": self.address}],
                "nodeInfo": {"kubeletVersion": "simulated"},
            },
        }


@dataclass(frozen=True, slots=True)
class Clients:
    """Two identities, as on a real node; here many kubelets may share one."""

    agent: Client
    kubelet: Client


class SimulatedNode:
    """A `Service`; or its parts one by one, for a test that hurts them."""

    def __init__(self, machine: Machine, clients: Clients, **timings: Any) -> None:
        self.machine = machine
        self._clients = clients
        self._stop = asyncio.Event()
        state = machine.folder / "state"
        self.config = dataclasses.replace(
            AgentConfig(node=machine.name, socket=machine.socket, state=state), **timings
        )
        self.kubelet = self.new_kubelet()

    def agent(self) -> Agent:
        """A process' worth of agent: each call is another life on the same state."""
        self.config.state.mkdir(parents=True, exist_ok=True)
        return Agent(self.config, self._clients.agent)

    def new_kubelet(self) -> Kubelet:
        """The same for its kubelet, which finds the sandboxes that are there."""
        sandboxes = Sandboxes(self.machine.folder / "sandboxes", self.config.boot_id)
        self.kubelet = Kubelet(
            self._clients.kubelet, self.machine.name, Plugin(self.machine.socket), sandboxes
        )
        return self.kubelet

    async def ready(self) -> None:
        """Return once the kubelet finds its agent ready."""
        await self.kubelet.ready.wait()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await self.register()
        await run(self.agent(), self.kubelet, stop=self._stop, patience=10)

    async def register(self) -> None:
        """Make the Node, or make it ours again."""
        wanted = self.machine.manifest()
        try:
            await self._clients.kubelet.create(wanted, resource=Node.resource)
        except AlreadyExists:
            labels = MergePatch({"metadata": {"labels": wanted["metadata"]["labels"]}})
            await self._clients.kubelet.patch(Node, self.machine.name, labels)
