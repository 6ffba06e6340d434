"""A local, current copy of a collection: list once, then follow the watch, whatever the connection does.

Controllers and agents read the `store` and are told of changes by handlers. The loop:

    list, as the quorum knows it ──▶ tell the differences ──▶ watch from that version ◀─┐
      ▲                                                         │         │             │
      └── 410 Gone: the version is compacted ───────────────────┘         └─ dropped: ──┘
                                                              resume from the last event or bookmark

Every error of the API only delays the informer: a CRD that is not installed yet and a permission that is not
granted yet come in time. An error of a handler or an index function is a mistake of ours, and surfaces.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from subnetes.kube.backoff import Backoff
from subnetes.kube.codec import Bookmark, Listing, WatchEvent
from subnetes.kube.delivery import Delivery, Handler
from subnetes.kube.errors import ApiError, Gone, Permanent, Unavailable
from subnetes.kube.key import Key, key_of
from subnetes.kube.metrics import Metrics
from subnetes.kube.selection import Source
from subnetes.kube.services import until
from subnetes.kube.store import IndexFunction, Store

log = logging.getLogger(__name__)

T = TypeVar("T")

RECONNECT = Backoff(first=0.1, cap=30.0)
# Servers send a bookmark every minute or two. Without a word for longer, the connection may be dead without
# either end knowing, and beginning another is cheap: it resumes.
_SILENCE = 150.0
_QUIET_BUT_GOOD = 5.0  # a watch that held this long was no failure, even if nothing happened in it


class Informer(Generic[T]):
    """Follows a `Source`; a `Service`."""

    def __init__(
        self,
        name: str,
        source: Source[T],
        *,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        backoff: Backoff = RECONNECT,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.store: Store[T] = Store(indexes)
        self._source = source
        self._backoff = backoff
        self._metrics = metrics or Metrics()
        self._metrics.watch_informer(name, self.store.__len__, self.silence)
        self._deliveries: list[Delivery[T]] = []
        self._version: str | None = None  # where to resume; None: list first
        self._failures = 0
        self._clock = time.monotonic  # until `run` knows its loop's
        self._heard_at: float | None = None
        self._running = False
        self._synced = asyncio.Event()
        self._stop = asyncio.Event()

    def on_change(self, handler: Handler[T]) -> None:
        """Call `handler(old, new)` for every change, from `(None, object)` to `(object, None)`.

        Handlers are added before `run`, and each has its own mailbox (see delivery.py).
        """
        if self._running:
            raise RuntimeError(f"{self.name} runs already: what it told so far is missed")
        self._deliveries.append(Delivery(handler))

    async def synced(self) -> None:
        """Return once the store has held the whole collection."""
        await self._synced.wait()

    def has_synced(self) -> bool:
        return self._synced.is_set()

    def silence(self) -> float:
        """Seconds since the last word from the API server: how old the store may be; at first infinite."""
        return float("inf") if self._heard_at is None else self._clock() - self._heard_at

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._running = True
        await until(self._stop, self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for delivery in self._deliveries:
                tasks.create_task(delivery.run())
            await self._follow()

    async def _follow(self) -> None:
        while True:
            began = self._clock()
            problem = await self._session()
            held = self._clock() - began >= _QUIET_BUT_GOOD
            if held:
                self._failures = 0
            if problem or not held:
                self._failures += 1
                await asyncio.sleep(self._delay(problem))

    async def _session(self) -> ApiError | None:
        """One watch, after a list where there is no version to resume from; what ended it."""
        try:
            if self._version is None:
                self._replace(await self._source.list())
            await self._watch(self._version or "")
        except ApiError as problem:
            self._note(problem)
            return problem
        return None

    async def _watch(self, version: str) -> None:
        try:
            async with asyncio.timeout(_SILENCE) as patience, aclosing(self._source.watch(version)) as events:
                async for event in events:
                    patience.reschedule(self._clock() + _SILENCE)
                    self._apply(event)
        except TimeoutError:
            raise Unavailable(f"the watch was silent for {_SILENCE:g} s") from None

    def _replace(self, listing: Listing[T]) -> None:
        self._metrics.lists.labels(self.name).inc()
        found = {key_of(obj): obj for obj in listing.items}
        for key in list(self.store.keys()):
            if key not in found:
                self._remove(key)
        for obj in found.values():
            self._put(obj)
        self._version = listing.resource_version
        self._heard_at = self._clock()
        self._synced.set()

    def _apply(self, event: WatchEvent[T]) -> None:
        if not isinstance(event, Bookmark):
            if event.type == "DELETED":
                self._remove(key_of(event.object))
            else:
                self._put(event.object)
        self._version = event.resource_version
        self._heard_at = self._clock()
        self._failures = 0

    def _put(self, obj: T) -> None:
        old = self.store.put(obj)
        if old is None or old != obj:
            self._tell(key_of(obj), old, obj)

    def _remove(self, key: Key) -> None:
        old = self.store.remove(key)
        if old is not None:
            self._tell(key, old, None)

    def _tell(self, key: Key, old: T | None, new: T | None) -> None:
        for delivery in self._deliveries:
            delivery.offer(key, old, new)

    def _note(self, problem: ApiError) -> None:
        self._metrics.informer_failures.labels(self.name, type(problem).__name__).inc()
        log.log(
            logging.WARNING if isinstance(problem, Permanent) else logging.INFO,
            "%s: %s: %s",
            self.name,
            type(problem).__name__,
            problem,
        )
        if _version_is_useless(problem):
            self._version = None

    def _delay(self, problem: ApiError | None) -> float:
        asked = (problem.retry_after if problem else None) or 0.0
        return max(self._backoff.draw(self._failures), asked)


def _version_is_useless(problem: ApiError) -> bool:
    """Compacted, or from a future that a restored backup does not know, or refused for whatever reason."""
    from_the_future = any(cause.reason == "ResourceVersionTooLarge" for cause in problem.causes)
    return isinstance(problem, Gone | Permanent) or from_the_future
