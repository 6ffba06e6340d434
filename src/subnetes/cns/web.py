"""The agent's page for operators: health, readiness, metrics, and the pool under `/debug`. Reads, and no
more.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from subnetes.cns import listener
from subnetes.cns.azure import Pools, debug_routes
from subnetes.cns.errors import NotReady


class View(Protocol):
    """What of the agent is shown."""

    @property
    def ipam(self) -> Pools: ...
    @property
    def registry(self) -> CollectorRegistry: ...


@asynccontextmanager
async def serve(view: View, address: str) -> AsyncIterator[int]:
    async with listener.listening(application(view), *listener.parse(address)) as port:
        yield port


def application(view: View) -> web.Application:
    page = Page(view)
    made = web.Application()
    made.add_routes(
        [
            web.get("/healthz", page.health),
            web.get("/livez", page.health),
            web.get("/readyz", page.readiness),
            web.get("/metrics", page.metrics),
            web.get("/debug/pool", page.pool),
            *debug_routes(view.ipam),
        ]
    )
    return made


class Page:
    def __init__(self, view: View) -> None:
        self._view = view

    async def health(self, _: web.Request) -> web.Response:
        """That it answers is the answer: everything runs in the loop that answers."""
        return web.Response(text="ok\n")

    async def readiness(self, _: web.Request) -> web.Response:
        """As CNI's STATUS: not before the agent has synced and the node has a network container."""
        try:
            self._view.ipam.ready()
        except NotReady as problem:
            return web.Response(status=503, text=f"{problem}\n")
        return web.Response(text="ok\n")

    async def pool(self, _: web.Request) -> web.Response:
        """The pool in memory, for `subnetes ipam check` to compare with the journal."""
        body = msgspec.json.encode({"ips": list(self._view.ipam.pool)})
        return web.Response(body=body, content_type="application/json")

    async def metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._view.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
