"""How many secondary IPs a network container should have: the number that the agent asks for.

Exact: a buffer is a fraction (0.1 is one tenth, not the nearest binary number), so no result depends on how a
float rounds. With batch B, the node holds a multiple of B, its primary IP included:

    total = B * ceil(buffer + demand / B)      secondary = total - 1, and B more if that is below the demand
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

DEFAULT_MAXIMUM = 250
"""Secondary IPs of a node, over all its network containers, unless its Node says otherwise."""


class InvalidScaler(ValueError):
    """No pool can scale by these values."""


@dataclass(frozen=True, slots=True)
class Scaler:
    batch: int
    buffer: Fraction

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InvalidScaler(f"a batch is at least 1 IP, not {self.batch}")
        if self.buffer < 0:
            raise InvalidScaler(f"a buffer is at least 0 batches, not {self.buffer}")

    @classmethod
    def of(cls, batch: int, buffer: float | str | Decimal | Fraction) -> "Scaler":
        return cls(batch, exactly(buffer))


def exactly(value: float | str | Decimal | Fraction) -> Fraction:
    """The number that was written: a float stands for the shortest decimal that reads as it."""
    try:
        return Fraction(repr(value) if isinstance(value, float) else value)
    except (ValueError, OverflowError, ZeroDivisionError):  # nan, infinity, no number
        raise InvalidScaler(f"{value!r} is no number to scale by") from None


DEFAULT = Scaler.of(16, "0.5")
EXHAUSTED = Scaler.of(1, 1)
"""Less the primary, exactly the demand: no IP stays idle."""


def target(scaler: Scaler, demand: int) -> int:
    """The secondary IPs of a network container with this demand, before the node's maximum."""
    batch, (over, under) = scaler.batch, scaler.buffer.as_integer_ratio()
    batches = -(-(over * batch + demand * under) // (under * batch))
    secondary = batches * batch - 1
    return secondary if secondary >= demand else secondary + batch


@dataclass(frozen=True, slots=True)
class Need:
    """What one network container of a node needs. Draining: it keeps what is assigned and wants no more."""

    demand: int
    assigned: int
    scaler: Scaler
    draining: bool = False


def targets(needs: Mapping[str, Need], maximum: int) -> dict[str, int]:
    """The secondary IPs of each network container of a node, at most `maximum` in all.

    Where that is too few, demand comes before buffers, and the least supplied comes first: a dual-stack pod
    needs one of each. Whatever is assigned stays, even above the maximum.
    """
    names = sorted(needs)
    assigned = [needs[name].assigned for name in names]
    demanded = [_demanded(needs[name]) for name in names]
    wanted = [_wanted(needs[name]) for name in names]
    if sum(demanded) > maximum:
        return dict(zip(names, _filled(assigned, demanded, maximum), strict=True))
    return dict(zip(names, _filled(demanded, wanted, maximum), strict=True))


def _demanded(need: Need) -> int:
    return need.assigned if need.draining else max(need.demand, need.assigned)


def _wanted(need: Need) -> int:
    return need.assigned if need.draining else max(target(need.scaler, need.demand), need.assigned)


def _filled(least: Sequence[int], most: Sequence[int], budget: int) -> list[int]:
    """Between least and most, everyone up to one level, and what then remains one by one in order."""

    def at(level: int) -> list[int]:
        return [min(max(level, low), high) for low, high in zip(least, most, strict=True)]

    level, beyond = 0, max(most, default=0) + 1  # the highest level that fits is in between
    while beyond - level > 1:
        middle = (level + beyond) // 2
        level, beyond = (middle, beyond) if sum(at(middle)) <= budget else (level, middle)
    result, higher = at(level), at(level + 1)
    for i in range(len(result)):
        if result[i] < higher[i] and sum(result) < budget:
            result[i] += 1
    return result
