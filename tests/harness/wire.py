"""A client that knows HTTP and nothing else of Kubernetes, for those who must owe nothing to our own client.

`Wire` sends what it is given and answers what came back; a test decides what is a failure.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
_LARGEST_LINE = 16 * 2**20


class Reachable(Protocol):
    url: str
    token: str
    ca_file: Path


@dataclass(frozen=True)
class Reply:
    code: int
    body: Any

    def ok(self) -> Any:
        assert self.code < 300, f"{self.code}: {self.body}"
        return self.body


class WatchEnded(Exception):
    """The server closed a watch, with the Status of its last event if it sent one."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(f"the watch ended ({code})")
        self.code = code


class Wire:
    """One identity at one server; an async context manager."""

    def __init__(self, server: Reachable, name: str = "wire") -> None:
        self._context = ssl.create_default_context(cafile=str(server.ca_file))
        self._url = server.url
        self._headers = {"Authorization": f"Bearer {server.token}", "User-Agent": name}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=64),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=60),
            read_bufsize=_LARGEST_LINE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = JSON, **query: Any
    ) -> Reply:
        assert self._session is not None
        async with self._session.request(
            method,
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": content_type},
            params={key: _text(value) for key, value in query.items()},
        ) as answer:
            data = await answer.read()
        return Reply(answer.status, json.loads(data) if data[:1] in (b"{", b"[") else data.decode())

    async def get(self, path: str, **query: Any) -> Reply:
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.request("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.request("PUT", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.request("PATCH", path, body, MERGE, **query)

    async def apply(self, path: str, body: Any, manager: str, *, force: bool = True, **query: Any) -> Reply:
        """Server-side apply; JSON is YAML."""
        return await self.request("PATCH", path, body, APPLY, fieldManager=manager, force=force, **query)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Its events one by one, until `WatchEnded`."""
        assert self._session is not None
        params = {key: _text(value) for key, value in query.items()} | {"watch": "true"}
        patience = aiohttp.ClientTimeout(total=None, sock_connect=30)
        async with self._session.get(self._url + path, params=params, timeout=patience) as answer:
            if answer.status != 200:
                raise WatchEnded(answer.status)
            yield _events(answer)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    try:
        while line := await answer.content.readline():
            event: dict[str, Any] = json.loads(line)
            if event["type"] == "ERROR":
                raise WatchEnded(event["object"].get("code", 0))
            yield event
    except (aiohttp.ClientError, json.JSONDecodeError) as problem:
        raise WatchEnded from problem
    raise WatchEnded


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
