"""What the node agent costs when nothing happens: memory and CPU of `subnetes agent` with 110 pods.

Run by `make bench-agent`. The agent is a process as a node runs it, beside the embedded API server and
`subnetes controller`; its 110 pods, the most that Kubernetes puts on a node, get their IPs over its socket.
Then everybody is left alone, and the agent's CPU is counted. Fails above 54 MB (what Azure's agent has,
measured) or 1 % of a core.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from benchmarks.scale import busy, resident
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.core import Node, Pod
from subnetes.api.crd import crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import ObjectMeta
from subnetes.api.names import NAMESPACE
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists
from subnetes.simulation.plugin import Plugin, PluginFailed
from subnetes.simulation.sandbox import Sandbox
from tests.harness.clients import client_of
from tests.harness.embedded import Embedded
from tests.harness.processes import Child, start

NODE, PODS = "node", 110
SETTLING, WATCHED = 15.0, 60.0  # seconds
MOST_MEMORY, MOST_CPU = 54.0, 0.01  # MB; of one core


@contextlib.contextmanager
def command(folder: Path, server: Embedded, *words: str) -> Iterator[Child]:
    child = start(
        [sys.executable, "-m", "subnetes.cli.main", *words, f"--kubeconfig={server.kubeconfig}"],
        folder / f"{words[0]}.log",
    )
    try:
        yield child
    finally:
        child.stop()


async def cluster(client: Client) -> None:
    """One node and a subnet for it; all of this project's kinds."""
    for crd in crds():
        with contextlib.suppress(AlreadyExists):
            await client.create(crd, resource=CustomResourceDefinition.resource)
    spec = ClusterSubnetSpec(address_space=["10.1.0.0/16"])
    await client.create(ClusterSubnet(metadata=ObjectMeta(name="pods", namespace=NAMESPACE), spec=spec))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    await client.create(node, resource=Node.resource)


async def pods(client: Client, plugin: Plugin) -> None:
    """Scheduled all at once, then started: each waits for the grant if it must."""
    sandboxes = []
    for number in range(PODS):
        name = f"pod-{number}"
        containers = [{"name": "c", "image": "i"}]
        pod = await client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": NODE, "containers": containers},
            },
            resource=Pod.resource,
        )
        sandboxes.append(
            Sandbox(uuid4().hex, "/proc/self/ns/net", "default", name, pod["metadata"]["uid"], "")
        )
    await asyncio.gather(*(plugin.add(sandbox) for sandbox in sandboxes))


async def ready(plugin: Plugin, patience: float = 60.0) -> None:
    async with asyncio.timeout(patience):
        while True:
            try:
                return await plugin.status()
            except (PluginFailed, OSError):
                await asyncio.sleep(0.1)


async def measure(folder: Path, server: Embedded) -> bool:
    socket = folder / "cns.sock"
    where = [f"--node-name={NODE}", f"--socket={socket}", f"--state-dir={folder / 'state'}"]
    async with client_of(server) as client:
        await cluster(client)
        with (
            command(folder, server, "controller"),
            command(folder, server, "agent", *where, "--listen=127.0.0.1:0") as agent,
        ):
            await ready(Plugin(socket))
            await pods(client, Plugin(socket))
            await asyncio.sleep(SETTLING)
            before = busy(agent.process.pid)
            await asyncio.sleep(WATCHED)
            return report(resident(agent.process.pid), (busy(agent.process.pid) - before) / WATCHED)


def report(memory: float, cpu: float) -> bool:
    good = memory <= MOST_MEMORY and cpu < MOST_CPU
    print(f"the agent of a node with {PODS} pods, idle for {WATCHED:.0f} s:")
    print(f"  {memory:.1f} MB resident (at most {MOST_MEMORY:.0f})")
    print(f"  {cpu:.2%} of one core (under {MOST_CPU:.0%})")
    print("kept" if good else "BROKEN")
    return good


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="subnetes-agent-"))
    try:
        with Embedded() as server:
            return 0 if asyncio.run(measure(folder, server)) else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
