"""An HTTP server in the test's own process that answers by script: what no healthy API server would do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from subnetes.kube.credentials import Authentication, Credentials

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Scripted:
    """Answers the n-th request with the n-th handler, and the rest with the last one."""

    handlers: list[Handler]
    url: str = ""
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: set[object] = field(default_factory=set)  # the clients' ends of the connections so far

    def credentials(self, authentication: Authentication = None) -> Credentials:
        return Credentials(self.url, authentication)

    def sent(self, header: str) -> list[str | None]:
        """The values that one header had in the requests so far."""
        return [request.headers.get(header) for request in self.requests]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.requests.append(request)
        self.bodies.append(await request.read())
        return await self.handlers[min(len(self.requests), len(self.handlers)) - 1](request)


@asynccontextmanager
async def scripted(*handlers: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    server = Scripted(list(handlers))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def answer(code: int, body: object = None, **headers: str) -> Handler:
    """JSON, or bytes as they are; underscores in header names are dashes."""

    async def handle(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, bytes):
            return web.Response(status=code, body=body, headers=named)
        return web.json_response(body, status=code, headers=named)

    return handle


def status(code: int, reason: str, message: str = "", **details: object) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        **({"details": details} if details else {}),
    }


def failing(code: int, reason: str, message: str = "", **headers: str) -> Handler:
    return answer(code, status(code, reason, message), **headers)


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets that event")


async def hang_up(request: web.Request) -> web.StreamResponse:
    """The connection is lost after the request arrived: nobody knows whether it was executed."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streaming(*chunks: bytes, then: Handler | None = None) -> Handler:
    """Send the chunks, then end the answer, or do what `then` does to the connection."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        else:
            await response.write_eof()
        return response

    return handle
