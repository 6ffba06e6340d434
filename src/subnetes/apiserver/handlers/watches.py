"""WATCH: the state so far, then every change that concerns the watcher, as lines of JSON.

Joining the hub and reading the store happen without a pause between them, so no change falls in a gap.
"""

import asyncio
from dataclasses import dataclass

import orjson
from aiohttp import web

from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.handlers import answers, asked, reads
from subnetes.apiserver.handlers.asked import Target
from subnetes.apiserver.hub import Event, Hub, Interest, Transition, Watcher
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import Failure, expired
from subnetes.apiserver.store import Expired

DEFAULT_SECONDS = 1800  # as the real server, which picks between half an hour and an hour
DRAIN_SECONDS = 10.0  # how long a client may take to read the rest of a watch that has ended


@dataclass(frozen=True, slots=True)
class Watches:
    objects: Objects
    hub: Hub
    bookmark_seconds: float

    async def watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        shape = answers.form(request)
        seconds = asked.number(request.query, "timeoutSeconds") or DEFAULT_SECONDS
        watcher, initial = self._join(request, target)
        response = web.StreamResponse(headers={"Content-Type": answers.JSON})
        stream = _Stream(self, request, target.endpoint, response, shape, self.objects.store.revision)
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(seconds, watcher.close)]

        def over() -> None:
            stream.ended = self.objects.store.revision
            timers.append(loop.call_later(DRAIN_SECONDS, _abort, request))

        watcher.on_close = over
        try:
            await response.prepare(request)
            await stream.run(watcher, initial)
            await response.write_eof()
        finally:
            for timer in timers:
                timer.cancel()
            self.hub.leave(watcher)
        return response

    def _join(self, request: web.BaseRequest, target: Target) -> tuple[Watcher, list[Event]]:
        key, query = target.endpoint.served.key, request.query
        selectors = asked.selectors(target.endpoint, query)
        since = asked.number(query, "resourceVersion")
        reads.check_reached(self.objects, since)
        span, equals = asked.span(target, selectors), selectors.fields.equals if selectors.fields else {}
        matches = selectors.matches if selectors.any else None
        watcher = self.hub.join(Interest(key, target.namespace, equals, matches))
        if since == 0 or asked.flag(query, "sendInitialEvents"):
            rows = self.objects.store.scan(key, span.prefix, under=span.under).rows
            wanted = [row for row in rows if not matches or matches(orjson.loads(row.value))]
            return watcher, [Event("ADDED", row.rv, row.value) for row in wanted]
        try:
            changes = self.objects.store.changes(since, key, span.prefix, under=span.under)
        except Expired as problem:
            watcher.close()
            return watcher, [_error(expired(str(problem)))]
        seen = [Transition(change, None, None).seen_by(matches) for change in changes]
        return watcher, [event for event in seen if event is not None]


@dataclass(slots=True)
class _Stream:
    """The events of one watch in its version and shape; what others can share is encoded once."""

    watches: Watches
    request: web.BaseRequest
    endpoint: Endpoint
    response: web.StreamResponse
    shape: str
    joined: int  # the revision that the initial events show
    ended: int = 0  # the revision up to which a closed watcher was offered what happened
    first: bool = True

    async def run(self, watcher: Watcher, initial: list[Event]) -> None:
        await self._send(initial)
        if asked.flag(self.request.query, "sendInitialEvents"):
            await self._bookmark(self.joined, {"annotations": {"k8s.io/initial-events-end": "true"}})
        events: list[Event] = []
        while events or not watcher.closed:
            timer = asyncio.get_running_loop().call_later(self.watches.bookmark_seconds, watcher.poke)
            events = await watcher.next()
            timer.cancel()
            await self._send(events)
            if not events:
                await self._bookmark(self.ended or self.watches.objects.store.revision, {})

    async def _send(self, events: list[Event]) -> None:
        lines = [await self._line(event) for event in events]
        if lines:
            await self.response.write(b"".join(lines))

    async def _bookmark(self, revision: int, more: dict[str, object]) -> None:
        """How far the watcher has come, though nothing concerned it."""
        if asked.flag(self.request.query, "allowWatchBookmarks"):
            resource = self.endpoint.served.resource
            metadata = {"resourceVersion": str(revision)} | more
            obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
            await self.response.write(Event("BOOKMARK", 0, orjson.dumps(obj)).line())

    async def _line(self, event: Event) -> bytes:
        if event.type == "ERROR":
            return event.line()
        try:
            return await (self._row(event) if self.shape == answers.TABLE else self._object(event))
        except Failure as failure:
            return _error(failure).line()

    async def _object(self, event: Event) -> bytes:
        if self.endpoint.are_current([event]):
            return event.line()
        version = self.endpoint.served.resource.version
        if version not in event.encoded:
            event.encoded[version] = asyncio.ensure_future(self._rendered(event))
        value = await asyncio.shield(event.encoded[version])
        return Event(event.type, event.rv, value).line()

    async def _row(self, event: Event) -> bytes:
        obj = orjson.loads(await self._rendered(event))
        meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        rows = answers.tabular(self.request, self.endpoint, [obj], meta)
        if not self.first:
            rows["columnDefinitions"] = None  # people want the heading once
        self.first = False
        return Event(event.type, event.rv, orjson.dumps(rows)).line()

    async def _rendered(self, event: Event) -> bytes:
        return (await self.watches.objects.render(self.endpoint, [event]))[0]


def _abort(request: web.BaseRequest) -> None:
    """Drop a client that stopped reading; no write to it would ever return."""
    if request.transport is not None:
        request.transport.abort()


def _error(failure: Failure) -> Event:
    return Event("ERROR", 0, orjson.dumps(failure.status()))
