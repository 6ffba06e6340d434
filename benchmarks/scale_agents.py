"""Some hundred agents in one process, for `benchmarks.scale`, which starts it and reads what it says.

Each is `cns.agent.Agent` with watches, journal and socket of its own; they share the process and the client's
credentials. A pod that the agent sees gets its ADD, as from a kubelet that saw the same. Ends with its stdin.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.api.core import Node, Pod
from subnetes.cns.agent import Agent, AgentConfig
from subnetes.cns.errors import NotReady
from subnetes.ipam.pool import Holder
from subnetes.kube.client import Client
from subnetes.kube.sources import from_kubeconfig

WAIT = 600.0  # seconds that an ADD may wait: what is measured must not be a retry


@dataclass
class Machine:
    """One node: its agent, and as much of a kubelet as asks for IPs."""

    name: str
    number: int
    agent: Agent
    pods: int
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    slowest: float = 0.0
    _asked: set[str] = field(default_factory=set)
    _held: int = 0
    _adds: set["asyncio.Task[None]"] = field(default_factory=set)

    async def join(self, client: Client, running: "asyncio.TaskGroup") -> None:
        address = f"172.{16 + (self.number >> 16)}.{self.number >> 8 & 255}.{self.number & 255}"
        await client.create(_node(self.name, address), resource=Node.resource)
        self.agent._pods.on_change(self._seen)
        running.create_task(self.agent.run())
        await self.agent.serving()
        while not self._is_ready():
            await asyncio.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            self.agent.ipam.ready()
        except NotReady:
            return False
        return True

    def _seen(self, _old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.metadata.name not in self._asked:
            self._asked.add(new.metadata.name)
            task = asyncio.create_task(self._add(new))
            self._adds.add(task)
            task.add_done_callback(self._adds.discard)

    async def _add(self, pod: Pod) -> None:
        meta, started = pod.metadata, time.monotonic()
        uid = meta.uid or ""
        holder = Holder(f"sandbox-{uid}", "eth0", "pods", meta.namespace or "", meta.name, uid)
        await self.agent.ipam.add(holder, wait=WAIT)
        self.slowest = max(self.slowest, time.monotonic() - started)
        self._held += 1
        if self._held == self.pods:
            self.assigned.set()


def _node(name: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


async def serve(options: argparse.Namespace) -> None:
    async with (
        Client(from_kubeconfig(options.kubeconfig), field_manager="subnetes-agent", deadline=120.0) as client,
        asyncio.TaskGroup() as running,
    ):
        machines = [_machine(options, client, number) for number in range(options.count)]
        process.seldom_collected()
        telling = running.create_task(_tell(machines, options.lanes, client, running))
        await _end_of_stdin()
        telling.cancel()
        for machine in machines:
            machine.agent.stop()


async def _tell(machines: list[Machine], lanes: int, client: Client, running: "asyncio.TaskGroup") -> None:
    left = iter(machines)

    async def lane() -> None:
        for machine in left:
            await machine.join(client, running)

    await asyncio.gather(*(lane() for _ in range(lanes)))
    print("ready", flush=True)
    await asyncio.gather(*(machine.assigned.wait() for machine in machines))
    print("assigned", max(machine.slowest for machine in machines), flush=True)


async def _end_of_stdin() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def _machine(options: argparse.Namespace, client: Client, number: int) -> Machine:
    name = f"n{options.first + number}"
    folder = options.folder / name
    folder.mkdir()
    agent = Agent(AgentConfig(name, folder / "s", folder), client)
    return Machine(name, options.first + number, agent, options.pods)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("first", "count", "lanes", "pods"):
        parser.add_argument(f"--{name}", type=int, required=True)
    process.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
