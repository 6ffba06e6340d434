"""What a ClusterSubnet's status should be: pure. clustersubnet.py reads and writes around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetStatus, Scaler
from subnetes.api.meta import Condition
from subnetes.controllers import scalers
from subnetes.controllers.status import timestamp, with_conditions
from subnetes.dnc.errors import DncError, SubnetInUse, SubnetOverlaps
from subnetes.ipam.exhaustion import Thresholds, is_exhausted

READY = "Ready"
SCALER_ACCEPTED = "ScalerAccepted"
CONFLICTING = "Conflicting"
MOST = 2**53 - 1  # more is not exact in every JSON reader
_NAMED = 5  # of a long list, in a message


@dataclass(frozen=True, slots=True)
class Level:
    """How full one family of the subnet is."""

    family: int
    capacity: int
    reserved: int

    def share(self) -> Fraction:
        return Fraction(self.reserved, self.capacity) if self.capacity else Fraction(1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What DNC thinks of the declaration."""

    ready: bool
    reason: str
    message: str
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """The scaling values in use, and why an override is not."""

    scaler: Scaler
    problem: str


def good(levels: tuple[Level, ...]) -> Verdict:
    return Verdict(True, "Declared", "nodes draw their IPs from it", levels)


def invalid(problem: str, levels: tuple[Level, ...] = ()) -> Verdict:
    return Verdict(False, "Invalid", problem, levels)


def refused(problem: DncError, levels: tuple[Level, ...] = ()) -> Verdict:
    """DNC said no; what it had on record before stands."""
    if isinstance(problem, SubnetInUse):
        return Verdict(False, "InUse", problem.message, levels)
    reason = "Overlaps" if isinstance(problem, SubnetOverlaps) else "Invalid"
    return Verdict(False, reason, problem.message, levels)


def held_by(nodes: Sequence[str]) -> str:
    return f"it goes when these nodes have let go of their IPs: {_some(nodes)}"


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(items[:_NAMED]) + more


def scaler(subnet: ClusterSubnet, levels: Sequence[Level]) -> Settled:
    """An override that cannot be used leaves the values as they are."""
    capacity = min((level.capacity for level in levels), default=None)
    problem = scalers.problem_with(subnet.spec.scaler, capacity)
    imported = scalers.from_text((subnet.metadata.annotations or {}).get(names.IMPORTED_SCALER))
    if not problem:
        return Settled(scalers.chosen(subnet.spec.scaler, imported), "")
    before = subnet.status.scaler if subnet.status else None
    return Settled(before or scalers.chosen(None, imported), problem)


def conditions(subnet: ClusterSubnet, verdict: Verdict, settled: Settled, now: float) -> list[Condition]:
    accepted = not settled.problem
    why = settled.problem and f"{settled.problem}; the values before it stay in use"
    return [
        _condition(subnet, READY, verdict.ready, (verdict.reason, verdict.message), now),
        _condition(
            subnet, SCALER_ACCEPTED, accepted, ("Accepted" if accepted else "InvalidOverride", why), now
        ),
    ]


def conflicting(planted: Sequence[object], subnet: ClusterSubnet, now: float) -> Condition:
    said = "NNCs showed what cannot be, and it is not granted: " + _some([str(each) for each in planted])
    return _condition(subnet, CONFLICTING, True, ("AddressConflict", said), now)


def _condition(subnet: ClusterSubnet, kind: str, holds: bool, why: tuple[str, str], now: float) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=why[0],
        message=why[1],
        last_transition_time=timestamp(now),
        observed_generation=subnet.metadata.generation,
    )


def is_bad(condition: Condition) -> bool:
    return (condition.status == "True") == (condition.type == CONFLICTING)


def compose(
    subnet: ClusterSubnet,
    verdict: Verdict,
    settled: Settled,
    projected: Mapping[int, int],
    news: Sequence[Condition],
) -> ClusterSubnetStatus:
    """The status; without figures from DNC, the figures and the exhaustion stay as they were."""
    before = subnet.status or ClusterSubnetStatus()
    stated = with_conditions(before.conditions or (), news, gone=[CONFLICTING])
    status = msgspec.structs.replace(before, scaler=settled.scaler, conditions=stated)
    never_accepted = not verdict.ready and before.capacity is None  # DNC knows it from adopted NCs only
    if not verdict.levels or never_accepted:
        return status
    scarcer = max(verdict.levels, key=Level.share)
    return msgspec.structs.replace(
        status,
        capacity=min(scarcer.capacity, MOST),
        reserved=min(scarcer.reserved, MOST),
        exhausted=_exhausted(subnet, verdict.levels, projected),
    )


def _exhausted(subnet: ClusterSubnet, levels: Sequence[Level], projected: Mapping[int, int]) -> bool:
    was = bool(subnet.status and subnet.status.exhausted)
    thresholds = Thresholds.of(subnet.spec.thresholds.upper, subnet.spec.thresholds.lower)
    return any(
        is_exhausted(was, level.reserved, level.capacity, projected.get(level.family, 0), thresholds)
        for level in levels
    )


def only_details_differ(before: ClusterSubnetStatus | None, after: ClusterSubnetStatus) -> bool:
    """Whether nothing is new but figures, or how many nodes a condition still waits for."""
    if before is None:
        return False
    words = {_stand(each): each.message for each in before.conditions or ()}
    conditions = [
        msgspec.structs.replace(each, message=words.get(_stand(each), each.message))
        for each in after.conditions or ()
    ]
    same = msgspec.structs.replace(
        after, reserved=before.reserved, capacity=before.capacity, conditions=conditions
    )
    return same == before


def _stand(condition: Condition) -> tuple[object, ...]:
    return condition.type, condition.status, condition.reason, condition.observed_generation
