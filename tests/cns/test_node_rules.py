"""One node driven at random: pods, sandboxes, grants, lost and doubled news, crashes and reboots.

The grantor here is DNC-RC as DESIGN's rules have it, played by hand. After every step what must never happen
has not; and from wherever the machine left it, a quiet while later the books agree.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetStatus
from subnetes.api.core import Pod
from subnetes.api.model import from_builtins
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cns.errors import NoAddress, NotReady
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal, read
from subnetes.cns.node import Node
from subnetes.ipam.pool import Holder, State

pytestmark = pytest.mark.slow

T = TypeVar("T")
NC = "nc"


class Cluster:
    """The API server's copy of the NNC, and DNC-RC's rules for it."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {"secondaryIPs": {}, "releasedIPs": []}
        self.generation = 1
        self.version = 1
        self.held: dict[str, str] = {}
        self.serial = 0
        self.room = 40
        self.granted: set[str] = set()
        self.freed: set[str] = set()
        self.uid = 1

    def give_all_away(self) -> None:
        """The Node was gone longer than the grace; what comes back is another NNC, which counts anew."""
        self.freed |= self.held.keys()
        self.held = {}
        self.spec = {"secondaryIPs": {}, "releasedIPs": []}
        self.generation = self.version = 1
        self.uid += 1

    def patch(self, document: dict[str, Any]) -> None:
        merged = {**self.spec["secondaryIPs"], **document["spec"]["secondaryIPs"]}
        spec = {
            "secondaryIPs": {nc: count for nc, count in merged.items() if count is not None},
            "releasedIPs": document["spec"]["releasedIPs"],
        }
        self.generation += spec != self.spec
        self.spec = spec

    def meet(self) -> None:
        before = dict(self.held)
        for ip_id in self.spec["releasedIPs"]:
            if self.held.pop(ip_id, None):
                self.freed.add(ip_id)
        for _ in range(min(self.spec["secondaryIPs"].get(NC, 0), self.room) - len(self.held)):
            self.serial += 1
            free = next(a for a in (f"10.0.0.{i}" for i in range(10, 99)) if a not in self.held.values())
            self.held[f"ip-{self.serial}"] = free
            self.granted.add(f"ip-{self.serial}")
        self.version += self.held != before

    def nnc(self) -> NodeNetworkConfig:
        made = NodeNetworkConfig(
            spec=NodeNetworkConfigSpec(
                secondary_ips=dict(self.spec["secondaryIPs"]), released_ips=list(self.spec["releasedIPs"])
            ),
            status=NodeNetworkConfigStatus(
                network_containers=[
                    NetworkContainer(
                        id=NC,
                        version=self.version,
                        subnet_name="blue",
                        subnet_address_space="10.0.0.0/24",
                        secondary_ips=[SecondaryIP(id=i, address=a) for i, a in self.held.items()],
                    )
                ]
            ),
        )
        made.metadata.name, made.metadata.uid = "node", f"uid-{self.uid}"
        made.metadata.generation = self.generation
        return made


class OneNode(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="subnetes-node-"))
        self.cluster = Cluster()
        self.boot, self.now, self.serial = 1, 0.0, 0
        self.pods: dict[str, Pod] = {}
        self.sandboxes: dict[str, str] = {}  # container id → address, as pods have them
        self.let_go: set[str] = set()
        self.old_news: list[NodeNetworkConfig] = []
        self.start()
        self.subnet_told(exhausted=False)

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.node.ipam.close()
            self.loop.close()
            shutil.rmtree(self.folder)

    def start(self) -> None:
        ipam = Ipam(Journal(self.folder / "journal", f"boot-{self.boot}"), clock=lambda: self.now)
        self.node = Node(ipam)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def told(self) -> None:
        """The informers have synced."""
        self.node.observe_pods(list(self.pods.values()), self.now)
        self.node.observe_nnc(self.cluster.nnc(), self.now)

    @rule()
    def schedule(self) -> None:
        self.serial += 1
        name = f"p{self.serial}"
        self.pods[name] = from_builtins(
            Pod, {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"phase": "Pending"}}
        )

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), again=st.booleans())
    def add(self, data: st.DataObject, again: bool) -> None:
        """A sandbox of a live pod, under a new container id or the former one's."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.serial += not again
        container = f"{uid}-{0 if again else self.serial}"
        try:
            (given,) = self.run(self.node.ipam.add(Holder(container, "eth0", pod_uid=uid), wait=0))
        except (NoAddress, NotReady):
            assert container not in self.sandboxes or not self.node.ipam.is_open
            return
        assert self.sandboxes.setdefault(container, given.address) == given.address

    @precondition(lambda self: self.sandboxes)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        container = data.draw(st.sampled_from(sorted(self.sandboxes)))
        assert self.node.ipam.delete(container, "eth0") == [self.sandboxes.pop(container)]
        assert self.node.ipam.delete(container, "eth0") == []

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        """Its sandboxes may live on for a while."""
        del self.pods[data.draw(st.sampled_from(sorted(self.pods)))]

    @rule()
    def news(self) -> None:
        self.old_news.append(self.cluster.nnc())
        self.told()

    @precondition(lambda self: self.old_news)
    @rule(data=st.data())
    def late_news(self, data: st.DataObject) -> None:
        """As a stale API server would tell, or a former leader."""
        self.node.observe_nnc(data.draw(st.sampled_from(self.old_news[-5:])), self.now)

    @rule(exhausted=st.booleans())
    def subnet_told(self, exhausted: bool) -> None:
        subnet = ClusterSubnet(status=ClusterSubnetStatus(exhausted=exhausted))
        self.node.observe_subnet("blue", subnet, self.now)

    @rule()
    def everybody_speaks(self) -> None:
        """An undisturbed while: all news come, and what is due is written and met."""
        for _ in range(2):
            self.news()
            self.plan("written")
            self.meet()
        self.news()

    @rule(fate=st.sampled_from(["written", "refused", "unanswered"]), met=st.booleans())
    def squeezed(self, fate: str, met: bool) -> None:
        """What is idle flows back, as far as the request gets."""
        self.everybody_speaks()
        self.subnet_told(exhausted=True)
        self.plan(fate)
        if met:
            self.meet()

    @rule(fate=st.sampled_from(["written", "refused", "unanswered"]))
    def plan(self, fate: str) -> None:
        plan = self.node.plan(self.now)
        for _ in range(3):
            if plan.patch is None and plan.wake_at < self.now + 100:
                self.now = max(self.now, plan.wake_at)
                plan = self.node.plan(self.now)
        if plan.patch is None:
            return
        listed = set(plan.patch["spec"]["releasedIPs"])
        on_disk = read(self.folder / "journal").pool
        assert all(on_disk.ip(ip_id).state is State.PENDING_RELEASE for ip_id in listed)
        if fate != "refused":
            self.cluster.patch(plan.patch)
        if fate == "written":
            self.node.wrote(self.cluster.nnc(), self.now)
        else:
            self.node.failed(self.now, 1.0)

    @rule()
    def meet(self) -> None:
        self.cluster.meet()

    @rule(room=st.integers(0, 40))
    def room_changes(self, room: int) -> None:
        self.cluster.room = room

    @rule(seconds=st.sampled_from([0.05, 1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def killed(self) -> None:
        """kill -9 and a restart: the journal is all there is."""
        self.node.ipam.close()
        self.start()
        assert self.node.ipam.pool.keys == {(container, "eth0") for container in self.sandboxes}

    @rule()
    def rebooted(self) -> None:
        self.node.ipam.close()
        self.boot += 1
        self.sandboxes.clear()
        self.start()
        assert not self.node.ipam.pool.keys

    @precondition(lambda self: not self.sandboxes)
    @rule(empty=st.booleans())
    def gone_past_the_grace(self, empty: bool) -> None:
        """Told that there is no NNC, or of its successor before that has anything."""
        self.cluster.give_all_away()
        self.old_news.clear()
        nothing = NodeNetworkConfig()
        nothing.metadata.uid = f"uid-{self.cluster.uid}"
        self.node.observe_nnc(nothing if empty else None, self.now)

    @rule()
    def without_the_api_server(self) -> None:
        if self.node.ipam.same_boot:
            self.node.ipam.open()

    @invariant()
    def what_must_never_happen(self) -> None:
        pool = self.node.ipam.pool
        held = {ip.holder.container_id: ip.address for ip in pool if ip.holder}
        assert held == self.sandboxes  # exactly what was answered for
        assert len(set(held.values())) == len(held)  # no address twice
        assert not {ip.id for ip in pool if ip.holder} & self.cluster.freed  # in use, but free for others
        self.let_go |= {ip.id for ip in pool if ip.state is State.PENDING_RELEASE}
        back = {ip.id for ip in pool if ip.state is not State.PENDING_RELEASE} & self.let_go
        assert not back, "a released IP came back without a new grant"
        if not self.node.ipam._journal.is_closed:
            assert read(self.folder / "journal").pool == pool

    def settle(self) -> None:
        """Everything speaks to everything, and a quiet while passes."""
        self.cluster.room = 60
        writes = 0
        for _ in range(30):
            self.told()
            self.node.observe_subnet("blue", ClusterSubnet(), self.now)
            plan = self.node.plan(self.now)
            if plan.patch is not None:
                writes += 1
                self.cluster.patch(plan.patch)
                self.node.wrote(self.cluster.nnc(), self.now)
            self.cluster.meet()
            self.now += 10.0
        self.what_must_never_happen()
        pool = self.node.ipam.pool
        assert {ip.id: ip.address for ip in pool} == self.cluster.held  # nothing leaked on either side
        assert len(pool) == self.cluster.spec["secondaryIPs"][NC]
        assert not pool.count(NC, State.PENDING_RELEASE)
        assert self.cluster.spec["releasedIPs"] == []
        assert writes <= 6


TestOneNode = OneNode.TestCase
TestOneNode.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
