"""The loop that keeps the world as declared: takes keys from the queue and has a reconciler see to each.

A reconciler is a plain async function of a name. It reads the whole state, decides and writes; how it ends
says when it is called again:

    returns None                    when something changes
    returns Result(requeue_after)   after that time, or when something changes
    raises Permanent                when something changes, or much later: what is missing may not be watched
    raises anything else            after the key's backoff, not before a Temporary's retry_after
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from subnetes.kube.backoff import Backoff
from subnetes.kube.errors import ApiError, Permanent, Temporary
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key, key_of
from subnetes.kube.metrics import Metrics
from subnetes.kube.workqueue import Taken, WorkQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY = Backoff(first=0.05, cap=120.0, jitter=0.2)
LAST_RESORT = 300.0  # seconds until what failed for good is looked at again; everything heals by itself


@dataclass(frozen=True, slots=True)
class Result:
    requeue_after: float | None = None


Reconciler = Callable[[Key], Awaitable[Result | None]]


class Controller:
    """At most `workers` reconciles at once, never two of one key; a `Service`."""

    def __init__(
        self,
        name: str,
        reconcile: Reconciler,
        *,
        workers: int = 4,
        backoff: Backoff = RETRY,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._metrics = metrics or Metrics()
        self._queue: WorkQueue[Key] = WorkQueue(backoff.draw)
        self._informers: list[Informer[Any]] = []
        self._wake = asyncio.Event()
        self._stopping = False

    def follow(self, informer: Informer[T], keys: Callable[[T], Iterable[Key]] | None = None) -> None:
        """Reconcile what the informer tells of: the object itself, or the keys that it concerns.

        Both the old and the new state are asked: what an object no longer concerns must hear of it too.
        """
        concerned = keys or _itself

        def changed(old: T | None, new: T | None) -> None:
            for state in (old, new):
                for key in concerned(state) if state is not None else ():
                    self.enqueue(key)

        informer.on_change(changed)
        self._informers.append(informer)

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        """Reconcile the key now, or after some seconds unless something makes it sooner."""
        self._metrics.adds.labels(self.name).inc()
        self._queue.add_after(key, after, self._now())
        self._changed()

    def stop(self) -> None:
        """Start no reconcile any more; those in process are finished."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Reconcile from the moment that all followed informers have synced."""
        async with asyncio.TaskGroup() as tasks:
            synced = tasks.create_task(self._wait_for_informers())
            while not self._stopping:
                self._wake.clear()
                if synced.done():
                    self._start_workers(tasks)
                await self._sleep()
            synced.cancel()

    async def _wait_for_informers(self) -> None:
        for informer in self._informers:
            await informer.synced()
        self._wake.set()

    def _start_workers(self, tasks: asyncio.TaskGroup) -> None:
        while self._queue.in_process() < self._workers:
            taken = self._queue.take(self._now())
            if taken is None:
                break
            tasks.create_task(self._work(taken), name=f"{self.name} {taken.key}")
        self._gauge()

    async def _sleep(self) -> None:
        """Until something changes or a delay is over; a full house waits for a worker to end."""
        due = self._queue.next_due() if self._queue.in_process() < self._workers else None
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _work(self, taken: Taken[Key]) -> None:
        began = self._now()
        self._metrics.queue_seconds.labels(self.name).observe(taken.waited)
        result = "cancelled"
        try:
            result = await self._attempt(taken.key)
        finally:
            self._metrics.work_seconds.labels(self.name).observe(self._now() - began)
            self._metrics.reconciles.labels(self.name, result).inc()
            self._changed()

    async def _attempt(self, key: Key) -> str:
        try:
            result = await self._reconcile(key)
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            log.warning("%s: %s: retried later: it awaited something that was cancelled", self.name, key)
            self._retry(key, 0.0)
            return "error"
        except Permanent as problem:
            log.error("%s: %s: not retried soon unless it changes: %s", self.name, key, _said(problem))
            self._queue.done(key, self._now(), LAST_RESORT)
            return "permanent_error"
        except Temporary as problem:
            log.info("%s: %s: retried later: %s", self.name, key, _said(problem))
            self._retry(key, problem.retry_after or 0.0)
            return "temporary_error"
        except Exception:  # whatever a reconciler does wrong with one object, the others are still served
            log.exception("%s: %s: retried later", self.name, key)
            self._retry(key, 0.0)
            return "error"
        requeue_after = result.requeue_after if result else None
        self._queue.done(key, self._now(), requeue_after)
        return "success" if requeue_after is None else "requeue_after"

    def _retry(self, key: Key, at_least: float) -> None:
        self._metrics.retries.labels(self.name).inc()
        self._queue.failed(key, self._now(), at_least)

    def _changed(self) -> None:
        self._gauge()
        self._wake.set()

    def _gauge(self) -> None:
        self._metrics.depth.labels(self.name).set(self._queue.depth())
        self._metrics.workers.labels(self.name).set(self._queue.in_process())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _itself(obj: object) -> Sequence[Key]:
    return (key_of(obj),)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _said(problem: ApiError) -> str:
    return f"{type(problem).__name__}: {problem}"
