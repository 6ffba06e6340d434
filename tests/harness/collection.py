"""A collection as an API server keeps it, in memory: a log of versions, which can be compacted, and watches.

It is a `Source` for informers. What can go wrong with a server goes wrong when the test says so: calls are
delayed or refused, watches dropped or ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

from subnetes.api.meta import StatusCause
from subnetes.kube.codec import Bookmark, Change, Listing, WatchEvent
from subnetes.kube.errors import ApiError, Gone, Unavailable

Thing = dict[str, Any]


def thing(name: str, version: int, **content: Any) -> Thing:
    metadata = {"namespace": "default", "name": name, "resourceVersion": str(version)}
    return {"metadata": metadata, **content}


def version_of(obj: Thing) -> int:
    return int(obj["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class Entry:
    version: int
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Thing


class Collection:
    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.version = 100
        self.lists = 0
        self.watches: list[str] = []  # from which version each began
        self.latency = 0.0
        self.refusals: list[ApiError] = []
        self.deaf = False  # watches that begin now never hear anything: a connection that died unnoticed
        self._log: list[Entry] = []
        self._compacted = 100
        self._interruptions = 0
        self._interruption: ApiError | None = None
        self._changed = asyncio.Event()

    def put(self, name: str, **content: Any) -> None:
        self.version += 1
        obj = thing(name, self.version, **content)
        self._append(Entry(self.version, "MODIFIED" if name in self.things else "ADDED", obj))
        self.things[name] = obj

    def delete(self, name: str) -> None:
        obj = self.things.pop(name, None)
        if obj is not None:
            self.version += 1
            self._append(Entry(self.version, "DELETED", thing(name, self.version)))

    def bookmark(self) -> None:
        """Other collections' writes move the version on, too; watchers are told."""
        self.version += 1
        self._append(Entry(self.version, "BOOKMARK", {}))

    def compact(self) -> None:
        self._log.clear()
        self._compacted = self.version
        self._wake()

    def restore(self, things: dict[str, Thing], version: int) -> None:
        """Put an older backup in place, as etcd's operators do."""
        self.things, self.version = dict(things), version
        self.compact()
        self.interrupt()

    def interrupt(self, problem: ApiError | None = None) -> None:
        """End every open watch, as a server does in its time, or with an error."""
        self._interruptions += 1
        self._interruption = problem
        self._wake()

    async def list(self) -> Listing[Thing]:
        self.lists += 1
        answer = Listing(list(self.things.values()), str(self.version))
        await self._travel()
        return answer

    async def watch(self, resource_version: str) -> AsyncGenerator[WatchEvent[Thing], None]:
        self.watches.append(resource_version)
        at, interruptions = int(resource_version), self._interruptions
        await self._travel()
        if self.deaf:
            await asyncio.Event().wait()
        if at > self.version:
            cause = StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version")
            raise Unavailable("Too large resource version", code=504, causes=(cause,))
        while True:
            if at < self._compacted:
                raise Gone("too old resource version", code=410)
            if self._interruptions != interruptions:
                if self._interruption is not None:
                    raise self._interruption
                return
            entry = next((each for each in self._log if each.version > at), None)
            if entry is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            await asyncio.sleep(self.latency)
            at = entry.version
            yield _event(entry)

    async def _travel(self) -> None:
        await asyncio.sleep(self.latency)
        if self.refusals:
            raise self.refusals.pop(0)

    def _append(self, entry: Entry) -> None:
        self._log.append(entry)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()


def _event(entry: Entry) -> WatchEvent[Thing]:
    if entry.type == "BOOKMARK":
        return Bookmark(str(entry.version))
    return Change(entry.type, entry.object, str(entry.version))
