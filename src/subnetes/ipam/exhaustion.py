"""Whether a subnet is so scarce that its nodes keep no spare IPs. DNC-RC decides it, every agent obeys.

Exhaustion begins by what is reserved and ends by what *would be* reserved: judged by what is reserved while
everybody is squeezed, it would end at once, the buffers would come back, and it would begin again, for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from subnetes.ipam.scaling import Scaler, exactly, target


class InvalidThresholds(ValueError):
    """With these, a subnet could be exhausted and recovered at once."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares of the capacity."""

    upper: Fraction
    lower: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.lower < self.upper <= 1:
            raise InvalidThresholds(
                f"thresholds must be 0 < lower < upper <= 1, not lower {self.lower} and upper {self.upper}"
            )

    @classmethod
    def of(cls, upper: float | str | Fraction = "0.9", lower: float | str | Fraction = "0.8") -> "Thresholds":
        return cls(exactly(upper), exactly(lower))


def most(maximum: int, requested: int, others: Iterable[int]) -> int:
    """The secondary IPs that a network container can come to hold, while the node's others want theirs.

    The maximum is the node's. Where buffers do not fit in, everyone gets up to one level (scaling.py), so the
    others may have to give way: what they request is not simply theirs.
    """
    wanted = sorted(others)
    left, sharing = maximum, len(wanted) + 1
    for each in wanted:
        if each * sharing >= left:
            break
        left, sharing = left - each, sharing - 1
    return max(requested, -(-left // sharing))


def contribution(scaler: Scaler, requested: int, ceiling: int) -> int:
    """What a network container that requests so many would hold with the normal scaler, its primary included.

    While a subnet is exhausted, nodes request exactly their demand: their sum is what recovery would cost. No
    buffer makes it more than the `ceiling`, the most that it can come to hold.
    """
    return min(target(scaler, requested), ceiling) + 1


def old_contribution(scaler: Scaler, requested: int, ceiling: int) -> int:
    """The same of an agent that only knows v1alpha, whichever of its generations: the most that it may hold.

    Exhausted, they all request one IP more than their demand. Once the subnet has recovered, they round the
    secondary IPs up to whole batches, without the primary; the first ones add whole batches instead, until
    enough are free. Counted as if they were ours, exhaustion would swing with them.
    """
    rounded = target(scaler, max(0, requested - 1)) + 1
    wanted_free = floor(scaler.batch * min(scaler.buffer, Fraction(1)) + Fraction(1, 2))
    added = requested + (scaler.batch if wanted_free > 1 else 0)
    return min(max(rounded, added), ceiling) + 1


def is_exhausted(was: bool, reserved: int, capacity: int, projected: int, thresholds: Thresholds) -> bool:
    """`projected` is the sum of the contributions.

    A subnet with nothing left is exhausted whatever its threshold: 1.0 can be reached but not exceeded. And
    it does not recover before the idle IPs are really back, or it would be exhausted again the moment after.
    """
    if reserved >= capacity or reserved > thresholds.upper * capacity:
        return True
    return was and projected >= thresholds.lower * capacity
