"""What `subnetes up` starts around the API server: DNC-RC, the webhook, a sample subnet, simulated nodes.

A composition root of its own, so that the command stays about words and folders.
"""

import ipaddress
import shutil
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec
from subnetes.api.core import Node, Pod
from subnetes.api.meta import ObjectMeta
from subnetes.api.names import NAMESPACE
from subnetes.cli.both_versions import BothVersions
from subnetes.controllers.process import Settings, dnc_rc
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.services import Service
from subnetes.kube.sources import from_kubeconfig
from subnetes.simulation.node import SIMULATED, Clients, Machine, SimulatedNode

SAMPLE_NAME = "sample"
SAMPLE_SPACE = "10.240.0.0/22"
ADDRESSES = ipaddress.ip_network("198.18.0.0/15")  # for benchmarks, by RFC 2544: nobody's machines
COUNTS_EVERY = 2.0  # seconds: three nodes may be told more often than five thousand
# One process has the data folder, so nobody waits for a lease but our own next start after a crash.
TERMS = Terms(duration=5, renew_deadline=4.0, retry_period=1.0)


class Playground:
    """An async context manager; `services` are run by the caller, `ready` returns when the nodes serve."""

    def __init__(self, kubeconfig: Path, folder: Path, nodes: int) -> None:
        self._credentials = from_kubeconfig(kubeconfig)
        self._machines = [_machine(folder, number) for number in range(1, nodes + 1)]
        self._folder = folder
        self._stack = AsyncExitStack()
        self._versions: BothVersions | None = None
        self._nodes: list[SimulatedNode] = []
        self.services: list[Service] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            client = await self._client(stack, "subnetes-controller")
            kubelets = await self._client(stack, "simulated-kubelet")
            await _ensure_sample(client)
            await self._take_away_others(client)
            settings = Settings(identity=socket.gethostname(), terms=TERMS, counts_every=COUNTS_EVERY)
            self.services.append(dnc_rc(client, _allocator, settings))
            self._versions = BothVersions(await self._client(stack, "subnetes-webhook"))
            self.services.extend(self._versions.services)
            for machine in self._machines:
                clients = Clients(await self._client(stack, "subnetes-agent"), kubelets)
                self._nodes.append(SimulatedNode(machine, clients))
            self.services.extend(self._nodes)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ready(self) -> None:
        """Return once NNCs are served in both versions, and every node's kubelet finds its agent ready."""
        assert self._versions is not None
        await self._versions.ready()
        for node in self._nodes:
            await node.ready()

    async def _client(self, stack: AsyncExitStack, name: str) -> Client:
        client = Client(self._credentials, field_manager=name, user_agent=name)
        return await stack.enter_async_context(client)

    async def _take_away_others(self, client: Client) -> None:
        """Nodes of an earlier start with more of them: nobody simulates them now, so they are gone."""
        wanted = {machine.name for machine in self._machines}
        for node in (await client.list(Node, label_selector=SIMULATED)).items:
            if node.metadata.name not in wanted:
                await _take_away(client, node.metadata.name)
                shutil.rmtree(self._folder / node.metadata.name, ignore_errors=True)


async def _take_away(client: Client, node: str) -> None:
    for pod in (await client.list(Pod, field_selector=f"spec.nodeName={node}")).items:
        await client.delete(Pod, pod.metadata.name, pod.metadata.namespace, grace_seconds=0)
    await client.delete(Node, node)


async def _ensure_sample(client: Client) -> None:
    """The sample subnet, unless the user has declared one."""
    if not (await client.list(ClusterSubnet, NAMESPACE)).items:
        metadata = ObjectMeta(name=SAMPLE_NAME, namespace=NAMESPACE)
        spec = ClusterSubnetSpec(address_space=[SAMPLE_SPACE])
        await client.create(ClusterSubnet(metadata=metadata, spec=spec))


async def _allocator() -> SqlAllocator:
    return SqlAllocator(await open_sqlite(":memory:"))


def _machine(folder: Path, number: int) -> Machine:
    name = f"node-{number}"
    return Machine(name, folder / name, str(ADDRESSES[number]))
