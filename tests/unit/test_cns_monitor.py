"""What the node needs, and when it asks for it: all by hand, the time included."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetStatus, Scaler
from subnetes.api.core import Pod
from subnetes.api.model import from_builtins
from subnetes.api.names import SCALER
from subnetes.api.nodenetworkconfig import NodeNetworkConfig, NodeNetworkConfigSpec
from subnetes.cns.containers import Container
from subnetes.cns.demand import Asking, demand, live_pods
from subnetes.cns.monitor import Decision, PoolMonitor, Request, Situation
from subnetes.cns.scalers import maximum, node_scaler, scaler
from subnetes.cns.standing import Standing
from subnetes.ipam import scaling
from subnetes.ipam.pool import Assigned, Freed, Gone, Granted, Holder, LetGo, Pool, State, apply

NC = Container(id="nc", subnet="blue", cidr="10.0.0.0/16", prefix_length=16)


def pod(name: str, uid: str = "", phase: str = "Pending", **rest: Any) -> Pod:
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", **rest.pop("metadata", {})}
    return from_builtins(Pod, {"metadata": metadata, "spec": rest, "status": {"phase": phase}})


def held(pool: Pool, ip_id: str, holder: Holder) -> Pool:
    return apply(pool, Assigned(ids=(ip_id,), holder=holder, at=0))


def filled(count: int, nc: str = "nc", pool: Pool | None = None) -> Pool:
    pool = pool or Pool()
    new = range(len(pool), len(pool) + count)
    ips = tuple((f"{nc}-{i}", f"10.0.{i // 250}.{i % 250}") for i in new)
    return apply(pool, Granted(nc=nc, ips=ips, at=0, programmed=True)) if ips else pool


def needed(pods: list[Pod], pool: Pool, *asking: Asking, containers: tuple[Container, ...] = (NC,)) -> int:
    return demand(containers, live_pods(pods), pool, asking)["nc"]


class TestDemand:
    def test_pods_that_need_an_ip(self) -> None:
        pods = [pod("a"), pod("b", phase="Running"), pod("c", phase="Failed"), pod("d", hostNetwork=True)]
        assert needed(pods, Pool()) == 2

    def test_a_pod_and_its_attachment_are_one(self) -> None:
        pool = held(filled(3), "nc-0", Holder("c1", "eth0", pod_uid="uid-a"))
        assert needed([pod("a")], pool) == 1
        assert needed([pod("a", phase="Succeeded")], pool) == 1
        assert needed([], pool) == 1

    def test_a_roll_over_of_ten_needs_twenty(self) -> None:
        pool = filled(10)
        for i in range(10):
            pool = held(pool, f"nc-{i}", Holder(f"c{i}", "eth0", pod_uid=f"old-{i}"))
        assert needed([pod(f"p{i}", uid=f"new-{i}") for i in range(10)], pool) == 20

    def test_a_pod_whose_sandbox_is_made_anew_needs_two_for_that_while(self) -> None:
        pool = held(filled(3), "nc-0", Holder("old", "eth0", pod_uid="uid-a"))
        waiting = Asking(Holder("new", "eth0", pod_uid="uid-a"), None)
        assert needed([pod("a")], pool, waiting) == 2
        assert needed([pod("a")], pool, waiting, waiting) == 2  # asked again by an impatient runtime

    def test_who_does_not_say_its_uid_is_found_by_name(self) -> None:
        pool = held(filled(3), "nc-0", Holder("c1", "eth0", pod_namespace="default", pod_name="a"))
        assert needed([pod("a")], pool) == 1
        assert needed([pod("b")], pool) == 2

    def test_a_static_pod_is_known_by_its_mirrors_annotation(self) -> None:
        mirror = pod("s", metadata={"annotations": {"kubernetes.io/config.mirror": "static"}})
        pool = held(filled(3), "nc-0", Holder("c1", "eth0", pod_uid="static"))
        assert needed([mirror], pool) == 1

    def test_each_family_of_the_default_network_is_needed_and_other_subnets_only_when_asked_for(self) -> None:
        six = Container(id="six", subnet="blue", cidr="fd00::/64", prefix_length=64, family=6)
        other = Container(id="other", subnet="green", cidr="10.1.0.0/24", prefix_length=24)
        asking = [Asking(Holder("c1", "net1", pod_uid="uid-a"), "green")]
        found = demand((NC, six, other), live_pods([pod("a"), pod("b")]), Pool(), asking)
        assert found == {"nc": 2, "six": 2, "other": 1}


class TestScaler:
    def nnc(self, annotation: str) -> NodeNetworkConfig:
        made = NodeNetworkConfig()
        made.metadata.annotations = {SCALER: annotation}
        return made

    def test_the_subnets_comes_before_the_nodes_before_the_default(self) -> None:
        said = node_scaler(self.nnc('{"batchSize":10,"requestThresholdPercent":50,"maxIPCount":100}'))
        subnet = ClusterSubnet(status=ClusterSubnetStatus(scaler=Scaler(batch=4, buffer=0.1)))
        assert scaler(subnet, said) == scaling.Scaler.of(4, "0.1")
        assert scaler(ClusterSubnet(), said) == scaling.Scaler.of(10, "0.5")
        assert maximum(said) == 100
        assert scaler(None, node_scaler(NodeNetworkConfig())) == scaling.DEFAULT

    def test_exhausted_keeps_nothing_spare(self) -> None:
        short = ClusterSubnetStatus(exhausted=True, scaler=Scaler(batch=4, buffer=0.1))
        assert scaler(ClusterSubnet(status=short), node_scaler(NodeNetworkConfig())) == scaling.EXHAUSTED

    @pytest.mark.parametrize(
        "odd", ["", "[]", '{"batchSize":0,"requestThresholdPercent":50}', '{"maxIPCount":-1}']
    )
    def test_what_makes_no_sense_is_the_default(self, odd: str) -> None:
        said = node_scaler(self.nnc(odd))
        assert (scaler(None, said), maximum(said)) == (scaling.DEFAULT, 250)


@given(st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 60)), min_size=1, max_size=30))
@settings(deadline=None)
def test_a_target_falls_to_the_highest_of_the_last_minute(steps: list[tuple[float, int]]) -> None:
    standing, history, now = Standing(), [], 0.0
    for wait, target in steps:
        now += wait
        history.append((now, target))
        standing.note(target, now)
        ends = [start for start, _ in history[1:]] + [inf]
        expected = max(value for (_, value), end in zip(history, ends, strict=True) if end + 60 > now)
        assert standing.highest(now, 60) == expected


class Hand:
    """A monitor, and the API server's side of it played by hand."""

    def __init__(self, nc: Container = NC) -> None:
        self.now = 100.0
        self.nc = nc
        self.monitor = PoolMonitor()
        self.pool = Pool()
        self.asking: tuple[Asking, ...] = ()
        self.nnc = NodeNetworkConfig()
        self.nnc.metadata.name, self.nnc.metadata.uid, self.nnc.metadata.generation = "node-1", "u", 1
        self.writes: list[Request] = []
        self.pods: list[Pod] = []
        self.monitor.observe_nnc(self.nnc)
        self.monitor.observe_pods([])
        self.monitor.observe_subnet("blue", None)

    def decide(self) -> Decision:
        return self.monitor.decide(Situation(self.pool, (self.nc,), self.asking), self.now)

    def step(self) -> Decision:
        """Decide once and, if something is due, have it written and let go."""
        decision = self.decide()
        if decision.request is not None:
            if decision.let_go:
                self.pool = apply(self.pool, LetGo(ids=decision.let_go, at=self.now))
            self.write(decision.request)
        return decision

    def write(self, request: Request) -> None:
        self.writes.append(request)
        self.nnc = NodeNetworkConfig(
            spec=NodeNetworkConfigSpec(
                secondary_ips=dict(request.targets), released_ips=sorted(request.released)
            )
        )
        self.nnc.metadata.uid, self.nnc.metadata.generation = "u", len(self.writes) + 1
        self.monitor.wrote(self.nnc, self.now)

    def meet(self) -> None:
        """What DNC would do."""
        gone = tuple(ip.id for ip in self.pool.in_state("nc", State.PENDING_RELEASE))
        if gone:
            self.pool = apply(self.pool, Gone(ids=gone, at=self.now))
        missing = self.writes[-1].targets["nc"] - len(self.pool)
        ips = tuple((f"v{len(self.writes)}-{i}", f"10.{len(self.writes)}.0.{i}") for i in range(missing))
        if ips:
            self.pool = apply(self.pool, Granted(nc="nc", ips=ips, at=self.now, programmed=True))

    def until_quiet(self, seconds: float) -> None:
        """Let time pass, waking when the monitor asks to."""
        end = self.now + seconds
        while True:
            wake = self.step().wake_at
            if wake > end:
                break
            assert wake > self.now or self.writes, "it asks to be woken in the past"
            self.now = max(self.now, wake)
        self.now = end

    def run_pods(self, *names: str) -> None:
        self.pods = [pod(name) for name in names]
        self.monitor.observe_pods(self.pods)

    def exhaust(self, exhausted: bool = True) -> None:
        self.monitor.observe_subnet("blue", ClusterSubnet(status=ClusterSubnetStatus(exhausted=exhausted)))

    @property
    def last(self) -> tuple[int, int]:
        return self.writes[-1].targets["nc"], len(self.writes[-1].released)


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_the_first_request_is_for_a_buffer_and_waits_for_quiet(hand: Hand) -> None:
    assert hand.step() == Decision(None, wake_at=hand.now + 0.05)
    hand.now += 0.05
    hand.step()
    assert hand.last == (15, 0)
    assert hand.step() == Decision(None, wake_at=inf)  # and then rests


@pytest.mark.parametrize("missing", ["nnc", "pods", "container"])
def test_nothing_is_asked_for_before_everything_is_known(hand: Hand, missing: str) -> None:
    hand.now += 1000
    fresh = PoolMonitor()
    if missing != "nnc":
        fresh.observe_nnc(hand.nnc)
    if missing != "pods":
        fresh.observe_pods([])
    fresh.observe_subnet("blue", None)
    containers = () if missing == "container" else (NC,)
    for _ in range(3):
        assert fresh.decide(Situation(Pool(), containers), hand.now) == Decision(None)
        hand.now += 10


def test_a_first_request_waits_for_the_subnets_scaler_but_not_for_ever(hand: Hand) -> None:
    fresh = PoolMonitor()
    fresh.observe_nnc(hand.nnc)
    fresh.observe_pods([])
    assert fresh.decide(Situation(Pool(), (NC,)), 100.0) == Decision(None, wake_at=105.0)
    assert fresh.decide(Situation(Pool(), (NC,)), 105.0) == Decision(None, wake_at=105.05)
    fresh.decide(Situation(Pool(), (NC,)), 105.05)


def test_a_steady_stream_of_pods_is_asked_for_every_half_second(hand: Hand) -> None:
    names: list[str] = []
    for i in range(100):  # one pod every 10 ms: never 50 ms of quiet
        names.append(f"p{i}")
        hand.run_pods(*names)
        hand.step()
        hand.now += 0.01
    assert 1 <= len(hand.writes) <= 2


def test_a_burst_is_one_request(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    hand.run_pods(*[f"p{i}" for i in range(100)])
    hand.until_quiet(10)
    assert len(hand.writes) == 2
    assert hand.last == (111, 0)


def test_a_lower_target_must_stand_for_a_minute(hand: Hand) -> None:
    hand.run_pods(*[f"p{i}" for i in range(20)])
    hand.until_quiet(1)
    hand.meet()
    assert hand.last == (31, 0)
    hand.run_pods("p0")
    hand.until_quiet(59)
    assert len(hand.writes) == 1
    hand.run_pods(*[f"p{i}" for i in range(20)])  # they are back: nothing was lost
    hand.until_quiet(30)
    hand.run_pods()
    hand.until_quiet(59)
    assert len(hand.writes) == 1
    hand.until_quiet(2)
    assert hand.last == (15, 16)


def test_an_exhausted_subnet_gets_everything_idle_back_at_once(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    hand.exhaust()
    hand.until_quiet(1)
    assert hand.last == (0, 15)
    hand.meet()
    hand.run_pods("a", "b")
    hand.until_quiet(1)
    assert hand.last == (2, 0)  # and the list was cleared by the same write
    hand.meet()
    hand.exhaust(False)
    hand.until_quiet(1)
    assert hand.last == (15, 0)


def test_a_release_costs_two_writes_the_second_within_half_a_minute(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    hand.exhaust()
    hand.until_quiet(1)
    hand.until_quiet(300)
    assert len(hand.writes) == 2  # while DNC has not freed them, the list stands and nothing is repeated
    hand.meet()
    hand.until_quiet(29)
    assert len(hand.writes) == 2
    hand.until_quiet(2)
    assert len(hand.writes) == 3
    assert hand.last == (0, 0)
    hand.until_quiet(300)
    assert len(hand.writes) == 3


def test_pods_that_hold_ips_are_never_asked_to_go(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    for ip in hand.pool.first_available("nc", 3):
        hand.pool = held(hand.pool, ip.id, Holder(f"c-{ip.id}", "eth0", pod_uid=ip.id))
    hand.exhaust()
    hand.until_quiet(1)
    assert hand.last == (3, 12)
    assert hand.pool.count("nc", State.ASSIGNED) == 3


def test_a_draining_nc_keeps_only_what_is_in_use() -> None:
    hand = Hand(Container(id="nc", subnet="blue", cidr="", prefix_length=24, draining=True))
    hand.pool = held(filled(10), "nc-0", Holder("c", "eth0"))
    hand.run_pods("a", "b")
    hand.until_quiet(1)
    assert hand.last == (1, 9)
    hand.meet()
    hand.pool = apply(hand.pool, Freed(container_id="c", ifname="eth0", at=0))
    hand.until_quiet(1)
    assert hand.last == (0, 1)


def test_a_grant_that_comes_after_the_target_fell_is_let_go_again(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.exhaust()
    hand.until_quiet(1)
    assert hand.last == (0, 0)
    hand.pool = filled(15)  # was under way
    hand.until_quiet(1)
    assert hand.last == (0, 15)


def test_a_failed_write_is_repeated_after_its_delay_and_nothing_is_taken_back(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    hand.exhaust()
    hand.step()
    hand.now += 0.05
    lost = hand.decide()
    assert lost.request is not None
    hand.pool = apply(hand.pool, LetGo(ids=lost.let_go, at=0))
    hand.monitor.failed(hand.now, 3.0)
    hand.exhaust(False)  # though it would be welcome now
    hand.run_pods("a")
    assert hand.step().wake_at == hand.now + 3.0
    hand.now += 3.0
    hand.step()
    assert hand.last == (15, 15)
    assert hand.writes[-1].released == lost.request.released


def test_a_request_that_is_answered_with_another_is_not_repeated_in_a_hurry(hand: Hand) -> None:
    hand.step()
    hand.now += 0.05
    assert hand.decide().request is not None
    hand.monitor.wrote(hand.nnc, hand.now)  # the spec in the answer is still the old one
    assert hand.step().wake_at == hand.now + 5.0


def test_old_news_of_the_spec_is_not_news(hand: Hand) -> None:
    old = hand.nnc
    hand.until_quiet(1)
    hand.monitor.observe_nnc(old)
    hand.until_quiet(10)
    assert len(hand.writes) == 1
    anew = NodeNetworkConfig()
    anew.metadata.uid, anew.metadata.generation = "another", 1
    hand.monitor.observe_nnc(anew)
    hand.until_quiet(1)
    assert len(hand.writes) == 2  # the new object knows nothing of it


def test_while_the_nnc_is_gone_nothing_is_written(hand: Hand) -> None:
    hand.monitor.observe_nnc(None)
    hand.until_quiet(100)
    assert hand.writes == []


def test_what_others_wrote_into_the_spec_is_mended(hand: Hand) -> None:
    hand.until_quiet(1)
    hand.meet()
    meddled = NodeNetworkConfig(spec=NodeNetworkConfigSpec(secondary_ips={"nc": 99, "x": 1}))
    meddled.metadata.uid, meddled.metadata.generation = "u", 50
    hand.monitor.observe_nnc(meddled)
    decision = hand.decide()
    hand.now = decision.wake_at
    decision = hand.decide()
    assert decision.request is not None
    assert decision.request.document(hand.monitor.asked)["spec"] == {
        "secondaryIPs": {"nc": 15, "x": None},
        "releasedIPs": [],
    }


def test_the_sum_of_all_ncs_stays_within_the_nodes_maximum(hand: Hand) -> None:
    hand.nnc.metadata.annotations = {SCALER: '{"maxIPCount":20}'}
    hand.monitor.observe_nnc(hand.nnc)
    hand.run_pods(*[f"p{i}" for i in range(30)])
    hand.until_quiet(1)
    assert hand.last == (20, 0)
