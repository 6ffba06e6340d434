"""WATCH: the state so far, then every change that concerns the watcher, as lines of JSON.

Joining the hub and reading the store happen without a pause between them, so no change falls in a gap.
"""

import asyncio
from dataclasses import dataclass

import orjson
from aiohttp import web

from subnetes.apiserver.handlers import answers, asked
from subnetes.apiserver.handlers.asked import Query, Target
from subnetes.apiserver.hub import Event, Hub, Interest, Transition, Watcher
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import Failure, expired, plain_error
from subnetes.apiserver.store import Expired

DEFAULT_SECONDS = 1800  # as the real server, which picks between half an hour and an hour


@dataclass(frozen=True, slots=True)
class Wish:
    """How the events of one watch are to look and when it ends."""

    target: Target
    shape: str
    bookmarks: bool
    streams_list: bool
    seconds: float
    include: str


class Watches:
    def __init__(self, objects: Objects, hub: Hub, bookmark_seconds: float = 60) -> None:
        self._objects = objects
        self._hub = hub
        self._bookmark_seconds = bookmark_seconds

    async def watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = request.query
        wish = Wish(
            target=target,
            shape=answers.form(request.headers.get("Accept", "")),
            bookmarks=asked.flag(query, "allowWatchBookmarks"),
            streams_list=asked.streams_list(query),
            seconds=asked.number(query, "timeoutSeconds") or DEFAULT_SECONDS,
            include=query.get("includeObject", ""),
        )
        watcher, initial = self._join(target, query, wish)
        response = web.StreamResponse(headers={"Content-Type": answers.JSON})
        try:
            await response.prepare(request)
            await self._stream(response, watcher, initial, wish)
            await response.write_eof()
        finally:
            self._hub.leave(watcher)
        return response

    def _join(self, target: Target, query: Query, wish: Wish) -> tuple[Watcher, list[Event]]:
        endpoint = target.endpoint
        selectors = asked.selectors(endpoint, query, target.name)
        since = _since(query)
        key = endpoint.served.key
        equals = selectors.fields.equals if selectors.fields else {}
        interest = Interest(key, target.namespace, equals, selectors.matches if selectors.any else None)
        prefix = f"{target.namespace}/" if target.namespace else ""
        watcher = self._hub.join(interest)
        if since == 0 or wish.streams_list:
            rows = self._objects.store.scan(key, prefix).rows
            events = [Event("ADDED", row.rv, row.value) for row in rows]
            return watcher, [
                e for e in events if not interest.matches or interest.matches(orjson.loads(e.value))
            ]
        try:
            changes = self._objects.store.changes(since, key, prefix)
        except Expired as problem:
            watcher.close()
            return watcher, [_error(expired(str(problem)))]
        seen = [Transition(change, None, None).seen_by(interest.matches) for change in changes]
        return watcher, [event for event in seen if event is not None]

    async def _stream(
        self, response: web.StreamResponse, watcher: Watcher, events: list[Event], wish: Wish
    ) -> None:
        clock = asyncio.get_running_loop()
        end = clock.time() + wish.seconds
        timer = clock.call_later(wish.seconds, watcher.close)
        view = _View(self._objects, wish)
        try:
            await self._send(response, view, events)
            if wish.streams_list and wish.bookmarks:
                await response.write(self._bookmark(wish, {"k8s.io/initial-events-end": "true"}))
            while await self._next(response, watcher, view, wish):
                pass
        finally:
            timer.cancel()
        if wish.bookmarks and clock.time() >= end:
            await response.write(self._bookmark(wish))

    async def _next(self, response: web.StreamResponse, watcher: Watcher, view: "_View", wish: Wish) -> bool:
        """Pass on what is new, or say how far all is passed on; answers whether there may be more."""
        timer = asyncio.get_running_loop().call_later(self._bookmark_seconds, watcher.poke)
        try:
            events = await watcher.next()
        finally:
            timer.cancel()
        if events:
            await self._send(response, view, events)
        elif wish.bookmarks and not watcher.closed:
            await response.write(self._bookmark(wish))
        return bool(events) or not watcher.closed

    async def _send(self, response: web.StreamResponse, view: "_View", events: list[Event]) -> None:
        lines = [await view.line(event) for event in events]
        if lines:
            await response.write(b"".join(lines))

    def _bookmark(self, wish: Wish, annotations: dict[str, str] | None = None) -> bytes:
        """How far the watcher has come, though nothing concerned it."""
        resource = wish.target.endpoint.served.resource
        metadata: dict[str, object] = {"resourceVersion": str(self._objects.store.revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return Event("BOOKMARK", 0, orjson.dumps(obj)).line()


class _View:
    """The events of one watch in its version and shape; what others can share is encoded once."""

    def __init__(self, objects: Objects, wish: Wish) -> None:
        self._objects = objects
        self._wish = wish
        self._first = True
        self._form = (wish.target.endpoint.served.resource.version, wish.shape, wish.include)

    async def line(self, event: Event) -> bytes:
        first, self._first = self._first, False
        endpoint, shape = self._wish.target.endpoint, self._wish.shape
        if event.type == "ERROR" or (shape == answers.PLAIN and endpoint.are_current([event])):
            return event.line()
        if shape == answers.TABLE:
            return await self._encode(event, headed=first)
        if self._form not in event.encoded:
            event.encoded[self._form] = asyncio.ensure_future(self._encode(event, headed=False))
        try:
            return await asyncio.shield(event.encoded[self._form])
        except Failure as failure:
            return _error(failure).line()

    async def _encode(self, event: Event, *, headed: bool) -> bytes:
        endpoint, shape = self._wish.target.endpoint, self._wish.shape
        value = (await self._objects.render(endpoint, [event]))[0]
        if shape == answers.PARTIAL:
            value = orjson.dumps(answers.partial(orjson.loads(value)))
        elif shape == answers.TABLE:
            obj = orjson.loads(value)
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            rows = answers.tabular(endpoint, [obj], meta, self._wish.include)
            # People want the heading once, so only the first event carries it.
            value = orjson.dumps(rows if headed else rows | {"columnDefinitions": None})
        return Event(event.type, event.rv, value).line()


def _since(query: Query) -> int:
    text = query.get("resourceVersion", "")
    if text and not text.isdigit():
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise plain_error(f'resourceVersion: Invalid value: "{text}": {why}')
    return int(text or 0)


def _error(failure: Failure) -> Event:
    return Event("ERROR", 0, orjson.dumps(failure.status()))
