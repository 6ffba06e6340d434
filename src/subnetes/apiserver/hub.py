"""Who watches what, and how one write reaches exactly those whom it can concern.

The writer calls `publish` after each commit; a watch request calls `join` and then reads `Watcher.next`. Each
watcher is filed under the most selective thing that it asked for (a name, another field, a namespace, or the
whole resource), so a write looks at the watchers that could match and at no others: five thousand agents that
each watch their own pods cost a write what one agent costs.

An event's JSON is made once for each form that some watcher reads (a version, a table) and shared. A watcher
that does not keep up is closed: its client resumes from the last resourceVersion that it saw.

Selectors look at objects as they are stored: a label or field that only a conversion makes is not seen.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from subnetes.apiserver.selectors import field_value
from subnetes.apiserver.store import Change

Matches = Callable[[Mapping[str, Any]], bool]
QUEUE_LIMIT = 10_000


@dataclass(slots=True, eq=False)
class Event:
    """One thing that a watcher sees; shared by all who see it, with the forms it was encoded in."""

    type: str
    rv: int
    value: bytes
    encoded: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)  # by version
    _line: bytes = b""

    def line(self) -> bytes:
        """The event as it is stored, which is how nearly everybody wants it."""
        if not self._line:
            self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.value)
        return self._line


class Transition:
    """A change as it looks to those who saw the object before, who see it now, or both."""

    def __init__(self, change: Change, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None) -> None:
        self.change = change
        self._new = new
        self._old = old
        self._events: dict[str, Event] = {}

    @property
    def new(self) -> Mapping[str, Any]:
        """The object after the change; of a deletion, its last state."""
        if self._new is None:
            self._new = orjson.loads(self.change.value)
        return self._new

    @property
    def old(self) -> Mapping[str, Any] | None:
        if self._old is None and self.change.before is not None:
            self._old = orjson.loads(self.change.before)
        return self._old

    def seen_by(self, matches: Matches | None) -> Event | None:
        """What a watcher with this selector is told, if anything."""
        existed = self.change.before is not None
        before = existed and (matches is None or matches(self.old or {}))
        after = not self.change.deleted and (matches is None or matches(self.new))
        if not before and not after:
            return None
        return self._event("DELETED" if not after else "MODIFIED" if before else "ADDED")

    def _event(self, kind: str) -> Event:
        if kind not in self._events:
            left = kind == "DELETED" and not self.change.deleted
            self._events[kind] = Event(kind, self.change.rv, self._last() if left else self.change.value)
        return self._events[kind]

    def _last(self) -> bytes:
        """It no longer matches: its watchers see the state that they knew go, under the new revision."""
        old = self.old or {}
        return orjson.dumps({**old, "metadata": {**old["metadata"], "resourceVersion": str(self.change.rv)}})


@dataclass(frozen=True, slots=True)
class Interest:
    """What a watcher asked for: a resource, perhaps one namespace, and what must be equal or match."""

    resource: str
    namespace: str = ""
    equals: Mapping[str, str] = field(default_factory=dict)
    matches: Matches | None = None

    def filed_under(self) -> tuple[str, str, str]:
        """The most selective of the equalities, as the index knows it."""
        if name := self.equals.get("metadata.name"):
            return self.resource, "metadata.name", name
        for path, value in self.equals.items():
            if path != "metadata.namespace" and value:
                return self.resource, path, value
        namespace = self.namespace or self.equals.get("metadata.namespace", "")
        return self.resource, "metadata.namespace" if namespace else "", namespace


class Watcher:
    def __init__(self, interest: Interest, limit: int) -> None:
        self.interest = interest
        self.closed = False
        self.on_close: Callable[[], object] = lambda: None
        self._limit = limit
        self._events: deque[Event] = deque()
        self._wake: asyncio.Future[None] | None = None

    def offer(self, transition: Transition) -> None:
        namespace = self.interest.namespace
        if self.closed:
            return
        if namespace and not transition.change.key.startswith(f"{namespace}/"):
            return
        event = transition.seen_by(self.interest.matches)
        if event is None:
            return
        self._events.append(event)
        if len(self._events) > self._limit:
            self.close()
        self.poke()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.on_close()
        self.poke()

    def poke(self) -> None:
        """Make `next` return, perhaps with nothing."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def next(self) -> list[Event]:
        """All events since the last call; waits for one, a poke or the end."""
        if not self._events and not self.closed:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None
        return self.pending()

    def pending(self) -> list[Event]:
        """What waits to be read, without waiting for more."""
        events = list(self._events)
        self._events.clear()
        return events


class Hub:
    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._filed: dict[tuple[str, str, str], set[Watcher]] = {}
        self._paths: dict[str, dict[str, int]] = {}  # resource → field path → how many watchers use it

    def join(self, interest: Interest) -> Watcher:
        watcher = Watcher(interest, self._limit)
        resource, path, _ = under = interest.filed_under()
        self._filed.setdefault(under, set()).add(watcher)
        counts = self._paths.setdefault(resource, {})
        counts[path] = counts.get(path, 0) + 1
        return watcher

    def leave(self, watcher: Watcher) -> None:
        resource, path, _ = under = watcher.interest.filed_under()
        self._filed[under].discard(watcher)
        if not self._filed[under]:
            del self._filed[under]
        counts = self._paths[resource]
        counts[path] -= 1
        if not counts[path]:
            del counts[path]

    def publish(self, change: Change, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
        transition = Transition(change, new, old)
        for path in self._paths.get(change.resource, {}):
            for value in {_value(new, path), _value(old or new, path)}:
                for watcher in self._filed.get((change.resource, path, value), ()):
                    watcher.offer(transition)

    def close(self, resource: str | None = None) -> None:
        """End the watches of one resource (its definition changed), or all of them."""
        for (filed, _, _), watchers in self._filed.items():
            if resource is None or filed == resource:
                for watcher in watchers:
                    watcher.close()

    def __len__(self) -> int:
        return sum(map(len, self._filed.values()))


def _value(obj: Mapping[str, Any], path: str) -> str:
    return field_value(obj, path) if path else ""
