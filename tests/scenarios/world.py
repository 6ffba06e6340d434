"""A small cluster for stories: an API server, DNC-RC, simulated nodes with real agents, and verbs.

    async def test_a_story(world: World) -> None:
        await world.subnet("pods", "10.1.0.0/24")
        await world.node("a")
        pods = await world.pods("a", 10)
        await world.running(pods)

What the stories ask about (pods, NNCs, subnets) is followed by informers, so that looking costs no requests.
Timings are shortened: what takes a minute in a cluster takes half a second here.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetStatus
from subnetes.api.core import Event, Node, Pod
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.cli.reading import Places, Reader
from subnetes.controllers.process import Settings, dnc_rc
from subnetes.dnc.allocator import Allocator
from subnetes.ipam.invariants import check
from subnetes.ipam.snapshot import Snapshot
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection
from subnetes.kube.services import run
from subnetes.kube.sources import from_kubeconfig
from subnetes.simulation.node import Clients, Machine, SimulatedNode
from tests.harness.clients import eventually
from tests.harness.requests import Request, requests
from tests.harness.snapshots import of_dnc
from tests.scenarios.parts import (
    PODS,
    ApiServer,
    Exhaustion,
    LivingNode,
    Running,
    new_allocator,
    pod_manifest,
)
from tests.scenarios.record import Writes, double_grants
from tests.scenarios.tidying import wipe

PATIENCE = 30.0
# In a cluster: wait 10, quiet 0.05, at most 0.5, shrink after 60, sweep every 30.
AGENT_TIMINGS = {"wait": 1.0, "quiet": 0.02, "at_most": 0.1, "shrink_after": 0.4, "sweep_every": 0.2}
SETTLING = 15.0
QUIET = 0.7  # longer than shrink_after and a round trip
TERMS = Terms(duration=20, renew_deadline=15.0, retry_period=3.0)  # a busy machine must not lose it


class World:
    def __init__(self, server: ApiServer, folder: Path, *, shared: bool = False) -> None:
        """`shared`: other worlds were and will be on this server, so it is tidied before and after."""
        self.server = server
        self.shared = shared
        self.folder = folder
        self.nodes: dict[str, LivingNode] = {}
        self._conflicts: set[str] = set()
        self._exhaustion = Exhaustion("", False)
        self._controllers: list[Running] = []
        self._numbers = itertools.count(1)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.client = await self._stack.enter_async_context(Client(from_kubeconfig(self.server.kubeconfig)))
        self._kubelets = await self._client("kubelets")
        if self.shared:
            await wipe(self.client)
        self._pods = Informer("pods", Selection(self.client, Pod))
        self._nncs = Informer("nncs", Selection(self.client, NodeNetworkConfig, NAMESPACE))
        self._subnets = Informer("subnets", Selection(self.client, ClusterSubnet, NAMESPACE))
        self._subnets.on_change(lambda old, new: self._exhaustion.saw(old, new))
        self.writes = Writes(self.client)
        self._stop = asyncio.Event()
        followed = (self._pods, self._nncs, self._subnets)
        self._followed = asyncio.create_task(run(*followed, self.writes, stop=self._stop, patience=5))
        for informer in followed:
            await informer.synced()
        await self.writes.started.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for living in self.nodes.values():
            await self._end(living)
        for running in self._controllers:
            await running.stop()
        self._stop.set()
        await self._followed
        if self.shared:
            await wipe(self.client)
        await self._stack.aclose()

    async def _end(self, living: LivingNode) -> None:
        if living.kubelet_runs is not None:
            await living.kubelet_runs.crash()  # it may wait for IPs that nobody will give
        await living.agent_runs.stop()

    # DNC-RC

    async def start_controller(
        self, allocator: Callable[[], Awaitable[Allocator]] = new_allocator, **settings: Any
    ) -> None:
        """A replica of DNC-RC with an empty database; what it knows, it learns from the NNCs."""
        number = next(self._numbers)
        chosen: dict[str, Any] = {
            "identity": f"replica-{number}",
            "terms": TERMS,
            "node_grace": 1.0,
            "counts_every": 0.2,
        }
        client = await self._client("subnetes-controller")
        self._controllers.append(Running(dnc_rc(client, allocator, Settings(**(chosen | settings)))))

    @property
    def allocator(self) -> Allocator | None:
        """The leader's, if there is one."""
        found = [running.service.allocator for running in self._controllers if running.service.leads()]
        return found[0] if found else None

    async def crash_controller(self) -> None:
        await self._controllers.pop().crash()

    # subnets

    async def subnet(self, name: str, *spaces: str, **spec: Any) -> None:
        """Declare a subnet; `scaler={"batch": 16}`, `gateway=[…]` and the like go to its spec as they are."""
        body = {
            "apiVersion": ClusterSubnet.resource.api_version,
            "kind": "ClusterSubnet",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"addressSpace": list(spaces)} | spec,
        }
        await self.client.create(body, resource=ClusterSubnet.resource)

    async def change_subnet(self, name: str, **spec: Any) -> None:
        await self.client.patch(ClusterSubnet, name, MergePatch({"spec": spec}), NAMESPACE)

    async def change_subnet_status(self, name: str, **status: Any) -> None:
        """As DNC-RC would, while there is none."""
        await self.client.patch(
            ClusterSubnet, name, MergePatch({"status": status}), NAMESPACE, subresource="status"
        )

    async def subnet_ready(self, name: str) -> None:
        await self.until(lambda: self.condition(name, "Ready")[0] == "True")

    def follow_exhaustion(self, name: str) -> Exhaustion:
        """What the flag becomes from now on, each change once."""
        self._exhaustion = Exhaustion(name, bool(self.subnet_status(name).exhausted))
        return self._exhaustion

    def subnet_status(self, name: str) -> ClusterSubnetStatus:
        found = self._subnets.store.get(Key(NAMESPACE, name))
        return (found.status if found else None) or ClusterSubnetStatus()

    def condition(self, subnet: str, kind: str) -> tuple[str, str]:
        """(status, reason) of a ClusterSubnet's condition."""
        found = [each for each in self.subnet_status(subnet).conditions or [] if each.type == kind]
        return (found[0].status, found[0].reason) if found else ("", "")

    # nodes

    async def node(self, name: str, *, kubelet: bool = True, **timings: Any) -> LivingNode:
        """A node joins: its Node object, its agent and, unless told otherwise, its kubelet."""
        client = await self._client("subnetes-agent")
        machine = Machine(name, self.folder / name, f"198.18.0.{len(self.nodes) + 1}")
        clients = Clients(client, self._kubelets)
        node = SimulatedNode(machine, clients, **(AGENT_TIMINGS | timings))
        await node.register()
        agent = node.agent()
        runs = Running(node.kubelet) if kubelet else None
        self.nodes[name] = LivingNode(node, agent, Running(agent), runs)
        return self.nodes[name]

    async def joined(self, *names: str) -> None:
        """Until every node is ready, or those named."""
        chosen = [self.nodes[name] for name in names or self.nodes]
        await self.until(lambda: all(each.node.kubelet.ready.is_set() for each in chosen))

    async def crash_agent(self, name: str) -> None:
        await self.nodes[name].agent_runs.crash()

    async def restart_agent(self, name: str) -> None:
        living = self.nodes[name]
        living.agent = living.node.agent()
        living.agent_runs = Running(living.agent)

    async def kubelet_stops(self, name: str) -> None:
        running = self.nodes[name].kubelet_runs
        assert running is not None
        await running.crash()
        self.nodes[name].kubelet_runs = None

    async def kubelet_starts(self, name: str) -> None:
        living = self.nodes[name]
        living.kubelet_runs = Running(living.node.new_kubelet())

    async def delete_node_object(self, name: str) -> None:
        """Only the object: its machine, agent and pods live on."""
        await self.client.delete(Node, name)

    async def node_dies(self, name: str) -> None:
        """The machine is gone, and somebody deletes its Node and pods, as a cloud provider does."""
        living = self.nodes.pop(name)
        if living.kubelet_runs is not None:
            await living.kubelet_runs.crash()
        await living.agent_runs.crash()
        await self.delete_node_object(name)
        for pod in self.pods_of(name):
            await self.client.delete(Pod, pod.metadata.name, pod.metadata.namespace, grace_seconds=0)

    def nnc(self, node: str) -> NodeNetworkConfig | None:
        return self._nncs.store.get(Key(NAMESPACE, node))

    def ncs(self, node: str) -> list[NetworkContainer]:
        nnc = self.nnc(node)
        return list((nnc.status.network_containers if nnc and nnc.status else None) or [])

    def granted(self, node: str) -> list[str]:
        """The addresses of the node's secondary IPs."""
        return [ip.address for nc in self.ncs(node) for ip in nc.secondary_ips or []]

    def requested(self, node: str) -> int:
        nnc = self.nnc(node)
        return sum(((nnc.spec.secondary_ips if nnc and nnc.spec else None) or {}).values())

    # pods

    async def pods(self, node: str, count: int) -> list[Key]:
        """Schedule pods on the node, all at once."""
        names = [f"pod-{next(self._numbers)}" for _ in range(count)]
        await asyncio.gather(
            *(self.client.create(pod_manifest(name, node), resource=Pod.resource) for name in names)
        )
        return [Key(PODS, name) for name in names]

    async def delete_pods(self, pods: Iterable[Key]) -> None:
        await asyncio.gather(*(self.client.delete(Pod, each.name, each.namespace) for each in pods))

    async def running(self, pods: Iterable[Key], patience: float = PATIENCE) -> list[str]:
        """Until all run; their addresses, which must be distinct."""
        wanted = list(pods)
        await self.until(lambda: all(self.address(each) for each in wanted), patience)
        addresses = [self.address(each) for each in wanted]
        assert len(set(addresses)) == len(addresses), "two pods with one address"
        return addresses

    async def gone(self, pods: Iterable[Key]) -> None:
        wanted = list(pods)
        await self.until(lambda: not any(each in self._pods.store for each in wanted))

    def address(self, pod: Key) -> str:
        found = self._pods.store.get(pod)
        return found.status.pod_ip if found else ""

    def pods_of(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.store if pod.spec.node_name == node]

    async def sweeps(self, node: str, count: int) -> None:
        """Until the agent has looked for lost sandboxes so many times."""
        await asyncio.sleep(count * self.nodes[node].node.config.sweep_every)

    def failed_adds(self, node: str) -> int:
        """How many ADDs got no IP in time."""
        return self.nodes[node].agent.ipam.counts.starved

    # looking

    async def node_is_ready(self, name: str) -> None:
        """As the API says it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                node = await self.client.get(Node, name)
                if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or []):
                    return
                await asyncio.sleep(0.05)

    async def quiet(self) -> None:
        """Until nobody wrote an NNC for longer than an agent waits before it lets IPs go."""
        seen, since = -1, 0.0
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(PATIENCE):
            while seen != len(self.writes.all) or clock() < since + QUIET:
                if seen != len(self.writes.all):
                    seen, since = len(self.writes.all), clock()
                await asyncio.sleep(0.05)

    async def until(self, question: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for the answer yes; a part that died meanwhile is the error."""

        def asked() -> bool:
            for running in self._controllers:
                if running.task.done():
                    running.task.result()
            return question()

        await eventually(asked, patience)

    async def check(self) -> None:
        """Wait for the dust to settle; what the invariants' checker still finds then is the error."""
        if self._controllers:
            await self.until(lambda: self.allocator is not None)
        found = ["not looked yet"]
        deadline = asyncio.get_running_loop().time() + SETTLING
        while found and asyncio.get_running_loop().time() < deadline:
            found = [str(each) for each in check(await self.snapshot(), settled=True)]
            found = [each for each in found if not self._is_expected(each)]
            await asyncio.sleep(0.1 if found else 0)
        found += double_grants(self.writes.all) if not self._conflicts else []
        assert found == [], "\n".join(found)

    def expect_conflict(self, address: str) -> None:
        """The story plants one: what the checker says of this address is no surprise."""
        self._conflicts.add(address)

    def _is_expected(self, violation: str) -> bool:
        return any(f" {address} " in f" {violation} " for address in self._conflicts)

    async def snapshot(self) -> Snapshot:
        """What `subnetes ipam check` reads, and what only this process knows: DNC, memories, sandboxes."""
        read = await Reader(self.client, Places()).read()
        ncs = await self.allocator.ncs("local") if self.allocator else None
        return replace(
            read,
            dnc=None if ncs is None else of_dnc(ncs),
            pools=tuple(living.pool() for living in self.nodes.values()),
            sandboxes={
                name: living.sandboxes()
                for name, living in self.nodes.items()
                if living.kubelet_runs is not None
            },
        )

    async def events(self, reason: str, namespace: str | None = None) -> list[Event]:
        found = (await self.client.list(Event, namespace)).items
        return [each for each in found if each.reason == reason]

    async def requests(self) -> Counter[Request]:
        """What the API server has been asked so far; in a thread, for it may be in this very loop."""
        return await asyncio.to_thread(requests, self.server)

    async def _client(self, name: str) -> Client:
        credentials = from_kubeconfig(self.server.kubeconfig)
        client = Client(credentials, user_agent=name, field_manager=name)
        return await self._stack.enter_async_context(client)
