"""When the node asks for more or fewer IPs, and which it lets go. No I/O: the time is an argument.

`Node` feeds it what was observed and asks `decide`. Everything is a target that is compared with what the
NNC's spec says now, so that a lost, doubled or failed write is simply decided again:

    more is needed       asked for after 50 ms of quiet, at most 500 ms: a burst of pods is one write
    less is needed       asked for when it has stood for 60 s, at once if the subnet is exhausted or drains
    too many are held    let go with the same write; pending ones are listed until they have left the status
    only to tidy up      ids that are gone from the status leave the list with the next write, at the latest
                         30 s on: a release costs at most two writes
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Pod
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns.containers import Container
from subnetes.cns.demand import Asking, demand, live_pods
from subnetes.cns.scalers import NOTHING_SAID, NodeScaler, is_exhausted, maximum, node_scaler, scaler
from subnetes.cns.standing import Standing
from subnetes.ipam.pool import Pool, State
from subnetes.ipam.scaling import Need, Scaler, targets


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds. `scaler_within`: how long a first request waits to learn its subnet's scaler."""

    quiet: float = 0.05
    at_most: float = 0.5
    shrink_after: float = 60.0
    clear_after: float = 30.0
    scaler_within: float = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the NNC's spec says, or should: NC id → target, and the ids of what was let go."""

    targets: Mapping[str, int]
    released: frozenset[str] = frozenset()

    def document(self, instead_of: "Request") -> dict[str, object]:
        """As a merge patch, in which null takes away a key."""
        obsolete = dict.fromkeys(instead_of.targets.keys() - self.targets.keys())
        return {"spec": {"secondaryIPs": {**self.targets, **obsolete}, "releasedIPs": sorted(self.released)}}


NOTHING = Request({})
REFUSED = 5.0  # seconds until a request is repeated that was answered with something else


@dataclass(frozen=True, slots=True)
class Situation:
    """What the agent has at the moment of a decision."""

    pool: Pool
    containers: tuple[Container, ...]
    asking: tuple[Asking, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`request` None: nothing to write yet. `let_go` is journaled before the request is sent."""

    request: Request | None
    let_go: tuple[str, ...] = ()
    wake_at: float = inf


class PoolMonitor:
    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self.needs: dict[str, Need] = {}
        self.wanted: dict[str, int] = {}
        """What each NC's target would be, were it not for the wait before it falls."""
        self._nnc: NodeNetworkConfig | None = None
        self._asked = NOTHING
        self._generation = 0
        self._pods: dict[tuple[str, str], str] | None = None
        self._subnets: dict[str, ClusterSubnet | None] = {}
        self._standing: dict[str, Standing] = {}
        self._first_seen: dict[str, float] = {}
        self._needs_changed = -inf
        self._unsettled: float | None = None
        self._untidy: float | None = None
        self._not_before = -inf
        self._sent: Request | None = None

    @property
    def asked(self) -> Request:
        """What the NNC's spec says, as far as is known."""
        return self._asked

    @property
    def maximum(self) -> int:
        return maximum(self._said())

    def subnet(self, name: str) -> ClusterSubnet | None:
        return self._subnets.get(name)

    def observe_nnc(self, nnc: NodeNetworkConfig | None) -> None:
        """None: it is gone, for now. A spec older than one we were answered with is not news."""
        before, self._nnc = self._nnc, nnc
        if nnc is None:
            return
        another = before is None or before.metadata.uid != nnc.metadata.uid
        generation = nnc.metadata.generation or 0
        if another or generation >= self._generation:
            spec = nnc.spec
            self._asked = Request(
                dict((spec and spec.secondary_ips) or {}), frozenset((spec and spec.released_ips) or ())
            )
            self._generation = generation

    def observe_pods(self, pods: Iterable[Pod]) -> None:
        self._pods = live_pods(pods)

    def observe_subnet(self, name: str, subnet: ClusterSubnet | None) -> None:
        self._subnets[name] = subnet

    def wrote(self, nnc: NodeNetworkConfig, now: float) -> None:
        """The answer to a request. One that was not taken as it was is not repeated in a hurry."""
        self._not_before = -inf
        self.observe_nnc(nnc)
        if self._sent is not None and self._asked != self._sent:
            self.failed(now, REFUSED)

    def failed(self, now: float, delay: float) -> None:
        """The request could not be written, or nobody knows: it is decided anew after the delay."""
        self._not_before = now + delay

    def decide(self, situation: Situation, now: float) -> Decision:
        if self._nnc is None or self._pods is None or not situation.containers:
            return Decision(None)
        knows_scalers_at = self._knows_scalers_at(situation.containers, now)
        if now < knows_scalers_at:
            return Decision(None, wake_at=knows_scalers_at)
        self._look(situation, now)
        goal = self._goal(situation.pool, now)
        let_go = tuple(_excess(situation.pool, goal))
        desired = Request(goal, frozenset(_pending(situation.pool)) | frozenset(let_go))
        due = self._due(desired, situation.pool, now)
        falls_at = min(each.falls_at(self.timing.shrink_after) for each in self._standing.values())
        if now < due:
            return Decision(None, wake_at=min(due, falls_at))
        self._unsettled = self._untidy = None
        self._sent = desired
        return Decision(desired, let_go, falls_at)

    def _said(self) -> NodeScaler:
        return node_scaler(self._nnc) if self._nnc is not None else NOTHING_SAID

    def _knows_scalers_at(self, containers: Iterable[Container], now: float) -> float:
        """When what is known of every NC's subnet has to do. An answer that nothing is there is knowledge."""
        unknown = [nc.id for nc in containers if nc.subnet and nc.subnet not in self._subnets]
        since = [self._first_seen.setdefault(nc_id, now) for nc_id in unknown]
        return max(since) + self.timing.scaler_within if since else -inf

    def _look(self, situation: Situation, now: float) -> None:
        """What each NC needs now, and what its target would be."""
        pool, said = situation.pool, self._said()
        demanded = demand(situation.containers, self._pods or {}, pool, situation.asking)
        needs = {
            nc.id: Need(
                demand=demanded[nc.id],
                assigned=pool.count(nc.id, State.ASSIGNED),
                scaler=scaler(self._subnets.get(nc.subnet), said),
                draining=nc.draining,
            )
            for nc in situation.containers
        }
        if _quantities(needs) != _quantities(self.needs):
            self._needs_changed = now
        self.needs = needs
        self.wanted = targets(needs, maximum(said))
        self._stand(situation, now)

    def _stand(self, situation: Situation, now: float) -> None:
        for gone in self._standing.keys() - self.wanted.keys():
            del self._standing[gone]
        for nc in situation.containers:
            standing = self._standing.get(nc.id)
            if standing is None:
                standing = self._standing[nc.id] = Standing()
                standing.note(max(self._asked.targets.get(nc.id, 0), _live(situation.pool, nc.id)), now)
            standing.note(self.wanted[nc.id], now)
            if nc.draining or is_exhausted(self._subnets.get(nc.subnet)):
                standing.forget()

    def _goal(self, pool: Pool, now: float) -> dict[str, int]:
        """The targets to ask for: rising at once, falling late, in sum never above the node's maximum."""
        goal = {}
        for nc, wanted in self.wanted.items():
            has = max(self._asked.targets.get(nc, 0), _live(pool, nc))
            goal[nc] = max(wanted, min(has, self._standing[nc].highest(now, self.timing.shrink_after)))
        return goal if sum(goal.values()) <= self.maximum else self.wanted

    def _due(self, desired: Request, pool: Pool, now: float) -> float:
        """When the difference to what the NNC says is to be written; never, if there is none."""
        if desired == self._asked:
            self._unsettled = self._untidy = None
            return inf
        if self._is_tidying(desired, pool):
            self._unsettled = None
            self._untidy = now if self._untidy is None else self._untidy
            return max(self._untidy + self.timing.clear_after, self._not_before)
        self._unsettled = now if self._unsettled is None else self._unsettled
        quiet = max(self._needs_changed, self._unsettled) + self.timing.quiet
        return max(min(quiet, self._unsettled + self.timing.at_most), self._not_before)

    def _is_tidying(self, desired: Request, pool: Pool) -> bool:
        """Whether the write would only drop what no longer means anything."""
        dropped = self._asked.released - desired.released
        same = {nc: self._asked.targets.get(nc) for nc in desired.targets} == desired.targets
        in_use = any(ip in pool and pool.ip(ip).state is State.ASSIGNED for ip in dropped)
        return same and desired.released <= self._asked.released and not in_use


def _quantities(needs: Mapping[str, Need]) -> dict[str, tuple[int, Scaler]]:
    """What of the needs can change a target upwards: a pod that takes the IP it was counted for does not."""
    return {nc: (need.demand, need.scaler) for nc, need in needs.items()}


def _live(pool: Pool, nc: str) -> int:
    """What the NC holds and keeps."""
    return sum(pool.count(nc, state) for state in State if state is not State.PENDING_RELEASE)


def _excess(pool: Pool, goal: Mapping[str, int]) -> Iterable[str]:
    """The ids to let go, those that have rested the longest: another node may have them soon."""
    for nc, target in goal.items():
        for ip in pool.first_available(nc, max(0, _live(pool, nc) - target)):
            yield ip.id


def _pending(pool: Pool) -> Iterable[str]:
    for nc in pool.ncs:
        for ip in pool.in_state(nc, State.PENDING_RELEASE):
            yield ip.id
