"""Which key to work on next: the decisions of a controller's queue, without a clock and without asyncio.

The controller is its shell: it says what time it is and obeys. The life of a key:

          add                    take                     done
    ── ──────────▶ ready ─────────────────▶ in process ──────────▶ gone
       add_after     ▲                          │  │
         │           │ due                      │  └── added meanwhile: ready again at once
         ▼           │                          │
       waiting ──────┘◀─────────────────────────┘ done or failed with a delay

What it promises:

- a key is in process at most once;
- however often a key is added before it is taken, it is taken once; added while in process, once more;
- of several delays for one key the earliest wins, and being taken settles them all;
- whatever was added after a key was last taken is taken again.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Taken(Generic[K]):
    key: K
    waited: float  # seconds since it became ready


class WorkQueue(Generic[K]):
    """`retry_delay` says how long a key rests after so many failures in a row."""

    def __init__(self, retry_delay: Callable[[int], float]) -> None:
        self._retry_delay = retry_delay
        self._ready: OrderedDict[K, float] = OrderedDict()  # since when, in the order of being taken
        self._in_process: set[K] = set()
        self._due: dict[K, float] = {}  # the delays that count; `_schedule` may hold outdated ones as well
        self._schedule: list[tuple[float, int, K]] = []
        self._tie_breaker = count()
        self._failures: dict[K, int] = {}

    def add(self, key: K, now: float) -> None:
        """Work on the key as soon as possible, whatever delays it has."""
        self._wait_until(key, now)
        self._promote(now)

    def add_after(self, key: K, delay: float, now: float) -> None:
        """Work on the key when the delay is over, unless something makes it sooner."""
        self._wait_until(key, now + max(delay, 0.0))
        self._promote(now)

    def take(self, now: float) -> Taken[K] | None:
        """The key that has been ready the longest, now in process; none if nothing is ready."""
        self._promote(now)
        if not self._ready:
            return None
        key, since = self._ready.popitem(last=False)
        self._in_process.add(key)
        return Taken(key, now - since)

    def done(self, key: K, now: float, again_after: float | None = None) -> None:
        """The work went well, or cannot go better by repeating it: past failures are forgotten."""
        self._failures.pop(key, None)
        self._finish(key, now, again_after)

    def failed(self, key: K, now: float, at_least: float = 0.0) -> None:
        """The work is to be repeated after the key's backoff, and not before `at_least` seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._finish(key, now, max(self._retry_delay(self._failures[key]), at_least))

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def next_due(self) -> float | None:
        """When a waiting key becomes ready; until then, without additions, there is nothing new to take."""
        while self._schedule and not self._counts(self._schedule[0]):
            heapq.heappop(self._schedule)
        return self._schedule[0][0] if self._schedule else None

    def depth(self) -> int:
        """How many keys could be taken now."""
        return len(self._ready)

    def in_process(self) -> int:
        return len(self._in_process)

    def _finish(self, key: K, now: float, again_after: float | None) -> None:
        self._in_process.remove(key)
        if again_after is not None:
            self._due[key] = min(now + again_after, self._due.get(key, inf))
        if key in self._due:
            self._schedule_key(key)
        self._promote(now)

    def _wait_until(self, key: K, due: float) -> None:
        if key in self._ready or due >= self._due.get(key, inf):
            return
        self._due[key] = due
        self._schedule_key(key)

    def _schedule_key(self, key: K) -> None:
        if len(self._schedule) > 2 * len(self._due) + 64:  # mostly outdated: far delays that were overtaken
            self._schedule = [entry for entry in self._schedule if self._counts(entry)]
            heapq.heapify(self._schedule)
        heapq.heappush(self._schedule, (self._due[key], next(self._tie_breaker), key))

    def _promote(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._schedule)
            del self._due[key]
            self._ready[key] = due

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        """Not outdated; the delay of a key in process is scheduled once more when that has ended."""
        due, _, key = entry
        return self._due.get(key) == due and key not in self._in_process
