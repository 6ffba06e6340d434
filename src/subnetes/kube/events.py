"""Events that people see with `kubectl describe`: recorded without waiting, written when there is time.

Reconcilers call `record`; the recorder is a service of services.run and writes what is left after correlation
(event_correlation.py). Counts that pile up while the API server is slow or away become one write.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, Protocol, cast

from subnetes.api.core import Event, EventSource, ObjectReference
from subnetes.api.meta import Object, ObjectMeta, ObjectMetaView
from subnetes.api.model import View
from subnetes.kube.backoff import Backoff
from subnetes.kube.errors import AlreadyExists, NotFound, Permanent, Temporary
from subnetes.kube.event_correlation import Correlator, Happening, Limits, Occurrence, Remembered
from subnetes.kube.metrics import Metrics
from subnetes.kube.patches import MergePatch

log = logging.getLogger(__name__)

_RETRY = Backoff(first=0.2, cap=5.0)
_LONGEST_MESSAGE = 1024  # more is refused


class EventWriter(Protocol):
    """What is needed of the client."""

    async def create(self, obj: Event) -> Event: ...
    async def patch(
        self, kind: type[Event], name: str, patch: MergePatch, namespace: str | None = None
    ) -> Event: ...


class Recorder:
    """Writes events in the name of a component; at most `capacity` wait, more are dropped and counted."""

    def __init__(
        self,
        client: EventWriter,
        component: str,
        instance: str,
        *,
        capacity: int = 1000,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._capacity = capacity
        self._metrics = metrics or Metrics()
        self._correlator = Correlator(limits)
        self._pending: OrderedDict[str, Occurrence] = OrderedDict()
        self._written: Remembered[bool] = Remembered((limits or Limits()).remembered)
        self._news = asyncio.Event()
        self._stopping = False

    def normal(self, about: Object | View | ObjectReference, reason: str, message: str) -> None:
        """Say that something happened as it should; never waits, never fails."""
        self._record(Happening(reference_to(about), "Normal", reason, message))

    def warning(self, about: Object | View | ObjectReference, reason: str, message: str) -> None:
        """Say that something needs somebody's attention; never waits, never fails."""
        self._record(Happening(reference_to(about), "Warning", reason, message))

    def stop(self) -> None:
        """Write what is pending, then end."""
        self._stopping = True
        self._news.set()

    async def run(self) -> None:
        failures = 0
        try:
            while not (self._stopping and not self._pending):
                await self._news.wait()
                failures = 0 if await self._write_next() else failures + 1
                if failures:
                    await asyncio.sleep(_RETRY.draw(failures))
        finally:
            self._drop("shutdown", len(self._pending))

    def _record(self, happening: Happening) -> None:
        occurrence = self._correlator.correlate(happening, time.time())
        if occurrence is None:
            self._drop("budget")
        elif occurrence.name not in self._pending and len(self._pending) >= self._capacity:
            self._drop("queue_full")
        else:
            self._pending[occurrence.name] = occurrence
            self._news.set()

    async def _write_next(self) -> bool:
        """Write the oldest pending event; whether the API server could be spoken to."""
        if not self._pending:
            self._news.clear()
            return True
        name, occurrence = self._pending.popitem(last=False)
        try:
            await self._write(occurrence)
        except Temporary as problem:
            log.info("event %s is written later: %s", name, problem)
            self._pending[name] = occurrence  # last, so that one bad event does not hold up the others
            return False
        except Permanent as problem:
            log.warning("event %s is dropped: %s", name, problem)
            self._drop("refused")
        except asyncio.CancelledError:
            self._pending[name] = occurrence
            raise
        else:
            self._metrics.events_sent.inc()
        return True

    async def _write(self, occurrence: Occurrence) -> None:
        event = self._event(occurrence)
        if self._written.get(occurrence.name):
            try:
                await self._count_up(event)
            except NotFound:  # Kubernetes forgets events after an hour
                await self._client.create(event)
            return
        try:
            await self._client.create(event)
        except AlreadyExists:  # an earlier try of ours whose answer was lost
            await self._count_up(event)
        self._written.put(occurrence.name, True)

    async def _count_up(self, event: Event) -> None:
        news = {"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}
        await self._client.patch(Event, event.metadata.name, MergePatch(news), event.metadata.namespace)

    def _event(self, occurrence: Occurrence) -> Event:
        about = occurrence.about
        return Event(
            metadata=ObjectMeta(name=occurrence.name, namespace=about.namespace or "default"),
            involved_object=about,
            type=occurrence.type,
            reason=occurrence.reason,
            message=occurrence.message[:_LONGEST_MESSAGE],
            count=occurrence.count,
            first_timestamp=_timestamp(occurrence.first),
            last_timestamp=_timestamp(occurrence.last),
            source=EventSource(component=self._component, host=self._instance),
            reporting_component=self._component,
            reporting_instance=self._instance,
        )

    def _drop(self, why: str, how_many: int = 1) -> None:
        self._metrics.events_dropped.labels(why).inc(how_many)


def reference_to(about: Object | View | ObjectReference) -> ObjectReference:
    if isinstance(about, ObjectReference):
        return about
    metadata: ObjectMeta | ObjectMetaView = cast("Any", about).metadata  # a View of a whole object has it
    return ObjectReference(
        api_version=about.resource.api_version,
        kind=about.resource.kind,
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
    )


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
