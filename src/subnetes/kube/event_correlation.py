"""Which of the many things that happen become Events of their own: pure; events.py writes what is left.

In this order, each with a bounded memory (what is forgotten merely starts anew):

1. What happened before, to the letter, counts the Event of that time up.
2. Once an object had many different messages of one type and reason, the next ones share one Event.
3. An object has a budget that refills slowly; beyond it, nothing is said about the object.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from subnetes.api.core import ObjectReference

V = TypeVar("V")

COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class Limits:
    different_messages: int = 10  # of one object, type and reason, within the window: more are combined
    window: float = 600.0
    burst: int = 25  # events of one object at once
    refill: float = 300.0  # seconds until it may have one more
    remembered: int = 4096  # objects, and events


@dataclass(frozen=True, slots=True)
class Happening:
    about: ObjectReference
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Occurrence:
    """An Event as it should now stand; times are seconds since the epoch."""

    name: str
    about: ObjectReference
    type: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 1


@dataclass(slots=True)
class _Budget:
    left: float
    at: float


@dataclass(slots=True)
class _Similar:
    since: float
    messages: set[str] = field(default_factory=set)


class Remembered(Generic[V]):
    """A dictionary that forgets what was not asked for the longest."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: V) -> V:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._capacity:
            self._values.popitem(last=False)
        return value


class Correlator:
    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._budgets: Remembered[_Budget] = Remembered(self._limits.remembered)
        self._similar: Remembered[_Similar] = Remembered(self._limits.remembered)
        self._occurrences: Remembered[Occurrence] = Remembered(self._limits.remembered)
        self._serial = count()

    def correlate(self, happening: Happening, now: float) -> Occurrence | None:
        """The Event to write for this, new or counted up; none if the object's budget is spent."""
        about = happening.about
        who = (about.api_version, about.kind, about.namespace, about.name, about.uid)
        if not self._spend(who, now):
            return None
        alike = (*who, happening.type, happening.reason)
        if self._too_many(alike, happening.message, now):
            return self._count(alike, happening, COMBINED + happening.message, now)
        return self._count((*alike, happening.message), happening, happening.message, now)

    def _spend(self, who: Hashable, now: float) -> bool:
        burst = self._limits.burst
        budget = self._budgets.get(who) or self._budgets.put(who, _Budget(burst, now))
        budget.left = min(burst, budget.left + max(now - budget.at, 0.0) / self._limits.refill)
        budget.at = now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True

    def _too_many(self, alike: Hashable, message: str, now: float) -> bool:
        similar = self._similar.get(alike)
        if similar is None or now - similar.since > self._limits.window:
            similar = self._similar.put(alike, _Similar(now))
        if message in similar.messages:
            return False
        if len(similar.messages) >= self._limits.different_messages:
            return True
        similar.messages.add(message)
        return False

    def _count(self, key: Hashable, happening: Happening, message: str, now: float) -> Occurrence:
        known = self._occurrences.get(key)
        if known is None:
            return self._occurrences.put(key, self._first(happening, message, now))
        known.count += 1
        known.last = max(now, known.last)
        known.message = message
        return known

    def _first(self, happening: Happening, message: str, now: float) -> Occurrence:
        about = happening.about
        name = f"{about.name[:200]}.{int(now * 1_000_000):x}{next(self._serial) % 4096:03x}"
        return Occurrence(name, about, happening.type, happening.reason, message, first=now, last=now)
