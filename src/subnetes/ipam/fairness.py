"""Who gets the IPs of a subnet that has too few: DNC's rule for grants.

A node without a primary IP cannot start at all, so primaries go first; then the oldest request. A grant may
be partial, and what older requests want is kept back for them: who asks often does not overtake who waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    nc: str
    """Its id; of a primary, whatever names who waits."""
    since: float
    wants: int
    primary: bool = False


def order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """In the order in which they are served."""
    return sorted(waiting, key=lambda one: (not one.primary, one.since, one.nc))


def share(free: int, asks: int, older: Iterable[Waiting]) -> int:
    """How many of the free IPs a request gets, where `older` are those before it in the order."""
    kept_back = sum(one.wants for one in older)
    return max(0, min(asks, free - kept_back))
