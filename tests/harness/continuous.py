"""Clients that read, list, watch and patch NNCs without pause, in one version, and remember what failed.

What an API server may do to a client at any time is no failure: it closes watches, and answers 429 to a list
while it sets its storage up anew. Everything else is.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import aiohttp

from tests.harness.old_nncs import collection
from tests.harness.wire import Reply, WatchEnded, Wire


class Continuous:
    """An async context manager. It patches annotations of `mine` only: `marker/<name>` counts up."""

    def __init__(
        self, wire: Wire, version: str, mine: Sequence[str], others: Sequence[str], seed: int = 1
    ) -> None:
        self.version, self.mine = version, mine
        self.failures: list[str] = []
        self.requests: Counter[str] = Counter()
        self.throttled = 0  # lists that were answered 429
        self.relisted = 0
        self.seen: dict[str, dict[str, Any]] = {}  # as list and watch show them
        self.served = asyncio.Event()  # this version
        self._wire, self._path = wire, collection(version)
        self._all, self._dice = [*mine, *others], random.Random(seed)
        self._written = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def marker(self) -> str:
        return f"marker/{self.version}"

    async def __aenter__(self) -> Self:
        works = (self._reading(), self._listing(), self._watching(), self._patching())
        self._tasks = [asyncio.create_task(each) for each in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                self.failures.append(repr(ended))

    async def mark(self, name: str, value: str) -> None:
        """One last word on an object, for the other version's watch."""
        note = {"metadata": {"annotations": {f"last/{self.version}": value}}}
        self._judge("mark", await self._wire.merge(f"{self._path}/{name}", note, fieldManager=self.marker))

    async def saw(self, name: str, annotation: str, value: str, patience: float = 30.0) -> None:
        """Until our watch has shown it."""
        async with asyncio.timeout(patience):
            while (self.seen.get(name, {}).get("metadata", {}).get("annotations") or {}).get(
                annotation
            ) != value:
                await asyncio.sleep(0.02)

    async def _reading(self) -> None:
        await self._until_served()
        while True:
            name = self._dice.choice(self._all)
            reply = await self._wire.get(f"{self._path}/{name}")
            self._judge("get", reply)
            if reply.code == 200 and reply.body["apiVersion"] != f"acn.azure.com/{self.version}":
                self.failures.append(f"{name} came as {reply.body['apiVersion']}")
            await asyncio.sleep(0.04)

    async def _listing(self) -> None:
        await self._until_served()
        while True:
            await self._list()
            await asyncio.sleep(1.0)

    async def _list(self, **query: Any) -> Reply:
        reply = await self._wire.get(self._path, **query)
        if reply.code == 429:
            self.throttled += 1
        else:
            self._judge("list", reply)
        if reply.code == 200 and len(reply.body["items"]) != len(self._all):
            self.failures.append(f"a list had {len(reply.body['items'])} items")
        return reply

    async def _watching(self) -> None:
        await self._until_served()
        while True:
            listed = await self._list(resourceVersion="0")
            if listed.code != 200:
                await asyncio.sleep(0.05)
                continue
            self.relisted += 1
            for item in listed.body["items"]:
                self.seen[item["metadata"]["name"]] = item
            with suppress(WatchEnded, aiohttp.ClientError):
                await self._watch(listed.body["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        while True:
            try:
                async with self._wire.watch(
                    self._path, resourceVersion=version, allowWatchBookmarks=True
                ) as events:
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            self.seen[event["object"]["metadata"]["name"]] = event["object"]
            except WatchEnded as ended:
                if ended.code not in (0, 200):
                    raise

    async def _patching(self) -> None:
        await self._until_served()
        while True:
            self._written += 1
            name = self._dice.choice(self.mine)
            note = {"metadata": {"annotations": {self.marker: str(self._written)}}}
            reply = await self._wire.merge(f"{self._path}/{name}", note, fieldManager=self.marker)
            self._judge("patch", reply)
            await asyncio.sleep(0.1)

    async def _until_served(self) -> None:
        while (await self._wire.get(self._path, limit=1)).code in (404, 429):
            await asyncio.sleep(0.05)
        self.served.set()

    def _judge(self, what: str, reply: Reply) -> None:
        self.requests[what] += 1
        if reply.code >= 300:
            self.failures.append(f"{what}: {reply.code} {str(reply.body)[:600]}")
