"""One node's agent without its surroundings: told what was observed, it changes the pool and plans writes.

The agent feeds it from informers and sends what it plans; a test does the same by hand. Time is an argument.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Pod
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns.demand import Asking, needs_ip, uid_of
from subnetes.cns.errors import JournalError
from subnetes.cns.ipam import Ipam
from subnetes.cns.monitor import PoolMonitor, Situation, Timing
from subnetes.cns.reconciliation import LOST
from subnetes.ipam.pool import Holder

log = logging.getLogger(__name__)

_AGAIN = 1.0  # seconds until a disk that failed is tried again
_SETTLES = 5.0  # seconds in which kubelets say the address of every sandbox that has one


@dataclass(frozen=True, slots=True)
class Plan:
    """A merge patch for the node's NNC, if one is due, and when to ask for the next plan at the latest."""

    patch: dict[str, Any] | None
    wake_at: float


class Node:
    def __init__(self, ipam: Ipam, timing: Timing | None = None) -> None:
        self.ipam = ipam
        self.monitor = PoolMonitor(timing)
        self._nnc: NodeNetworkConfig | None = None
        self._pods: list[Pod] | None = None
        self._behind = False
        self._settled_at: float | None = None

    @property
    def subnet_names(self) -> frozenset[str]:
        """The ClusterSubnets to watch."""
        return frozenset(nc.subnet for nc in self.ipam.containers if nc.subnet)

    def observe_nnc(self, nnc: NodeNetworkConfig | None, now: float) -> None:
        """None: it is gone, and with it nothing of the pool: its Node may only have been made anew."""
        self._nnc = nnc
        self.monitor.observe_nnc(nnc)
        self._behind = True
        self._reconcile(now)

    def observe_pods(self, pods: Iterable[Pod], now: float) -> None:
        self._pods = list(pods)
        self.monitor.observe_pods(self._pods)
        self._reconcile(now)

    def observe_subnet(self, name: str, subnet: ClusterSubnet | None, now: float) -> None:  # noqa: ARG002
        self.monitor.observe_subnet(name, subnet)

    def plan(self, now: float) -> Plan:
        """What to send now. What it lets go is in the journal when this returns."""
        self._behind = self._behind or (bool(self.ipam.drift) and self._nnc is not None)
        self._reconcile(now)
        if self._behind:
            return Plan(None, now + _AGAIN)
        asking = tuple(Asking(each.holder, each.subnet) for each in self.ipam.waiting)
        before = self.monitor.asked
        granted = tuple(nc for nc in self.ipam.containers if not nc.missing)
        decision = self.monitor.decide(Situation(self.ipam.pool, granted, asking), now)
        if decision.request is None:
            return Plan(None, decision.wake_at)
        try:
            self.ipam.let_go(decision.let_go)
        except JournalError as problem:
            log.error("no IP is released now: %s", problem)
            return Plan(None, now + _AGAIN)
        return Plan(decision.request.document(instead_of=before), decision.wake_at)

    def wrote(self, nnc: NodeNetworkConfig, now: float) -> None:
        """The API server's answer to the plan's patch.

        Its status is left to the informer, which brings one after the other: taken from here, the next one in
        line would look like a step back.
        """
        self.monitor.wrote(nnc, now)

    def failed(self, now: float, delay: float) -> None:
        """The patch was refused, or nobody knows whether it was taken: another follows after the delay."""
        self.monitor.failed(now, delay)

    def _reconcile(self, now: float) -> None:
        if not self._behind or not self._may_open(now):
            return
        claims = {} if self.ipam.had_journal else dict(_claims(self._pods or ()))
        try:
            if self._nnc is None:
                self.ipam.withdrawn()
            else:
                self.ipam.reconcile(self._nnc, claims)
        except JournalError as problem:
            log.error("the NodeNetworkConfig is not followed now: %s", problem)
        else:
            self._behind = False

    def _may_open(self, now: float) -> bool:
        """Without a journal, pods that run already must be known before the pool is opened.

        A kubelet says a pod's address some time after the sandbox got it, so those that have said none yet
        are waited for. Where the node holds no IP, nobody can have one.
        """
        if self.ipam.had_journal or self.ipam.is_open or self._nnc is None:
            return True
        if self._pods is None:
            return False
        if self._settled_at is None:
            self._settled_at = now + _SETTLES
        silent = any(not pod.status.pod_ips for pod in filter(needs_ip, self._pods))
        return now >= self._settled_at or not (silent and _holds_any(self._nnc))


def _holds_any(nnc: NodeNetworkConfig) -> bool:
    return any(nc.secondary_ips for nc in (nnc.status and nnc.status.network_containers) or ())


def _claims(pods: Iterable[Pod]) -> Iterable[tuple[str, Holder]]:
    """The addresses that pods say they have, and who they are."""
    for pod in filter(needs_ip, pods):
        holder = Holder(
            container_id=f"{LOST}{uid_of(pod)}",
            ifname="eth0",
            pod_namespace=pod.metadata.namespace or "",
            pod_name=pod.metadata.name,
            pod_uid=uid_of(pod),
        )
        for each in pod.status.pod_ips or ():
            yield each.ip, holder
