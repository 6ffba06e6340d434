"""The whole system under everything that can happen to it, in any order; the invariants hold at every step.

Nodes join, leave and return; pods come and go; agents, machines and leaders crash; requests and answers are
lost; views are stale, and a former leader finishes what it had begun. At the end everybody is well again, the
dust settles, and nothing is leaked and nobody is left waiting who could be served.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.crd import crds
from subnetes.api.names import NAMESPACE
from subnetes.apiserver.server import Config, Server
from subnetes.cns.ipam import Ipam
from subnetes.cns.reconciliation import IN_USE, TAKEN, TWICE
from subnetes.controllers.adoption import Adoption
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.ipam.invariants import check, compare
from subnetes.ipam.snapshot import Snapshot
from subnetes.kube.client import Client
from subnetes.kube.patches import MergePatch
from subnetes.kube.sources import from_kubeconfig
from tests.harness.system import GRACE, SUBNET, Clock, Machine, Outcome, Part, System

pytestmark = pytest.mark.slow

SPACE = "10.1.0.0/27"
CAPACITY = 29
ROUNDS = 12
NODES = st.sampled_from(["a", "b", "c"])
PARTS: st.SearchStrategy[Part] = st.sampled_from(["node", "nnc", "nnc", "subnet"])
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    ["arrives", "arrives", "arrives, and the answer is lost", "is lost"]
)
OVERRIDES = st.sampled_from(
    [None, {"batch": 1, "buffer": 1}, {"batch": 4}, {"batch": 8, "buffer": 0}, {"batch": 999}]
)
ALWAYS = (1, 2, 4, 5, 7, 8)  # 6, the shape of a request, may lag behind while views are stale


async def allocator(clock: Clock) -> Allocator:
    return SqlAllocator(await open_sqlite(":memory:"), clock=clock)


class SystemRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="system-"))
        self.before: Snapshot | None = None

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize(pods=st.lists(st.integers(0, 12), min_size=2, max_size=3))
    def begin(self, pods: list[int]) -> None:
        self.do(self._begin(pods))

    async def _begin(self, pods: list[int]) -> None:
        self.server = Server(Config(data=None, crds=crds()))
        await self.server.__aenter__()
        self.client = Client(from_kubeconfig(self.server.kubeconfig))
        self.system = System(self.client, self.folder, allocator)
        await self.system.begin(SPACE)
        for name, count in zip("abc", pods, strict=False):
            await self.system.join(name)
            await self.system.schedule(name, count)
        await self.system.round()
        await self.system.round()
        for machine in self.system.machines.values():
            await self.system.start_pods(machine, 8)

    # nodes and machines

    @rule(node=NODES)
    def node_joins_or_returns(self, node: str) -> None:
        self.do(self.system.join(node))

    @rule(node=NODES)
    def node_object_goes(self, node: str) -> None:
        self.do(self.system.delete_node_object(node))

    @rule(node=NODES)
    def machine_dies(self, node: str) -> None:
        self.do(self.system.die(node))

    @rule(node=NODES)
    def machine_reboots(self, node: str) -> None:
        if machine := self.machine(node):
            machine.reboot()

    # pods and sandboxes

    @rule(node=NODES, go=st.integers(0, 8), come=st.integers(0, 8))
    def pods_are_rolled(self, node: str, go: int, come: int) -> None:
        """As a Deployment and a kubelet do it, whatever the control plane does meanwhile."""
        if machine := self.machine(node):
            self.do(self.system.schedule(node, come))
            self.do(self.system.forget_pods(node, go))
            self.do(self.system.start_pods(machine, come))
            self.do(self.system.end_orphans(machine))

    @rule(node=NODES, count=st.integers(1, 12))
    def pods_come(self, node: str, count: int) -> None:
        if self.machine(node):
            self.do(self.system.schedule(node, count))

    @rule(node=NODES, count=st.integers(1, 12))
    def pods_go(self, node: str, count: int) -> None:
        self.do(self.system.forget_pods(node, count))

    @rule(node=NODES, count=st.integers(1, 12))
    def sandboxes_are_made(self, node: str, count: int) -> None:
        if machine := self.machine(node):
            self.do(self.system.start_pods(machine, count))

    @rule(node=NODES, choice=st.integers(0, 20), told=st.booleans())
    def a_sandbox_ends(self, node: str, choice: int, told: bool) -> None:
        machine = self.machine(node)
        if machine and machine.sandboxes:
            name = sorted(machine.sandboxes)[choice % len(machine.sandboxes)]
            (machine.delete if told else machine.vanish)(name)

    @rule(node=NODES)
    def orphans_end(self, node: str) -> None:
        if machine := self.machine(node):
            self.do(self.system.end_orphans(machine))

    @rule(node=NODES)
    def agent_sweeps(self, node: str) -> None:
        if machine := self.machine(node):
            machine.sweep()

    # agents

    @rule(node=NODES)
    def agent_looks(self, node: str) -> None:
        if machine := self.machine(node):
            self.do(self.system.agent_looks(machine))

    @rule(node=NODES, outcome=OUTCOMES, looks=st.booleans())
    def agent_plans(self, node: str, outcome: Outcome, looks: bool) -> None:
        if machine := self.machine(node):
            if looks:
                self.do(self.system.agent_looks(machine))
            self.do(self.system.agent_plans(machine, outcome))

    @rule(node=NODES, outcome=OUTCOMES)
    def a_pool_shrinks(self, node: str, outcome: Outcome) -> None:
        """Its pods go, and a minute later its agent lets IPs go."""
        if machine := self.machine(node):
            self.do(self.system.forget_pods(node, 12))
            self.do(self.system.end_orphans(machine))
            self.do(self.system.agent_looks(machine))
            machine.node.plan(self.system.clock())
            self.do(self.system.pass_time(61.0))
            self.do(self.system.agent_plans(machine, outcome))

    @rule(node=NODES)
    def agent_crashes(self, node: str) -> None:
        if machine := self.machine(node):
            machine.crash()

    # DNC-RC

    @rule()
    def leader_looks(self) -> None:
        self.do(self.system.replica.look())

    @rule(part=PARTS, node=NODES, looks=st.booleans())
    def leader_reconciles(self, part: Part, node: str, looks: bool) -> None:
        if looks:
            self.do(self.system.replica.look())
        self.do(self.system.replica.reconcile(part, node))

    @rule()
    def another_leads(self) -> None:
        """The leader is frozen in the middle of something; another takes over with an empty database."""
        self.system.former = self.system.replica
        self.system.replica = self.do(self.system.new_leader())

    @precondition(lambda self: self.system.former is not None)
    @rule(part=PARTS, node=NODES)
    def the_former_leader_finishes_what_it_began(self, part: Part, node: str) -> None:
        """It does not look again: before it could, it would learn that it no longer leads."""
        assert self.system.former is not None
        self.do(self.system.former.reconcile(part, node))

    @rule(scaler=OVERRIDES)
    def the_scaler_is_overridden(self, scaler: dict[str, float] | None) -> None:
        wanted = None if scaler is None else {"batch": None, "buffer": None} | scaler
        patch = MergePatch({"spec": {"scaler": wanted}})
        self.do(self.client.patch(ClusterSubnet, SUBNET, patch, NAMESPACE))

    @rule(seconds=st.sampled_from([1.0, 61.0, GRACE + 5]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.system.pass_time(seconds))

    @rule()
    def all_act_once(self) -> None:
        self.do(self.system.round())

    # what must hold

    @invariant()
    def nothing_is_wrong(self) -> None:
        now = self.do(self.system.snapshot())
        found = [each for each in check(now, settled=False) if each.number in ALWAYS]
        if self.before is not None:
            found += compare(self.before, now)
        self.before = now
        assert found == [], "\n".join(map(str, found))

    @invariant()
    def nothing_is_taken_that_was_not_released(self) -> None:
        for machine in self.system.machines.values():
            taken = {kind: machine.ipam.counts.drift[kind] for kind in (TAKEN, IN_USE, TWICE)}
            assert not any(taken.values()), f"[5] node {machine.name}: {taken}"

    def machine(self, node: str) -> Machine | None:
        return self.system.machines.get(node)

    def teardown(self) -> None:
        try:
            if hasattr(self, "system"):
                self.do(self._settle())
        finally:
            self.do(self._end())
            self.runner.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _settle(self) -> None:
        """Everybody is well: within a bounded number of rounds all is as it should be."""
        system = self.system
        found = ["not looked yet"]
        for _ in range(ROUNDS):
            for machine in system.machines.values():
                await system.join(machine.name)
                machine.sweep()
                await system.end_orphans(machine)
            await system.round()
            for machine in system.machines.values():
                await system.start_pods(machine, 100)
            await system.pass_time(GRACE + 5)
            found = [str(each) for each in check(await system.snapshot(), settled=True)]
            found = found or await self._hungry()
            if not found:
                return
        raise AssertionError("after the dust should have settled:\n" + "\n".join(found))

    async def _hungry(self) -> list[str]:
        """Pods without a sandbox, though the subnet has room for them."""
        system, waiting, running = self.system, 0, 0
        for machine in system.machines.values():
            waiting += len(await system.pods(machine.name)) - len(machine.sandboxes)
            running += len(machine.sandboxes)
        nodes = len((await system.snapshot()).configs)
        room = CAPACITY - nodes - running
        return [f"{waiting} pods wait, and {room} addresses are free"] if waiting and room > 0 else []

    async def _end(self) -> None:
        if hasattr(self, "client"):
            await self.client.close()
            await self.server.__aexit__()


SETTINGS = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_nothing_that_must_not_happen_happens() -> None:
    run_state_machine_as_test(SystemRules, settings=SETTINGS)


async def _adopts_nothing(_: Adoption) -> set[str]:
    return set()


def _releases_without_a_note(_: Ipam, ids: Sequence[str]) -> None:
    """The request is sent, and the journal does not know of it."""


def _frees_by_absence(machine: Machine) -> None:
    """A collector that takes an idle look for a proof."""
    machine.ipam.sweep(machine.ipam.holders()[:1])


FAULTS = {
    "a leader that adopts nothing": (Adoption, "run", _adopts_nothing),
    "an agent that does not journal what it lets go": (Ipam, "let_go", _releases_without_a_note),
    "a collector that frees what lives": (Machine, "sweep", _frees_by_absence),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    fixed = settings(SETTINGS, max_examples=100, derandomize=True, phases=[Phase.generate], print_blob=False)
    with pytest.raises(AssertionError, match=r"\[\d\] |after the dust should have settled"):
        run_state_machine_as_test(SystemRules, settings=fixed)
