"""DNC over HTTP: each route is one call of an `Allocator`. `subnetes dnc` runs it.

A request's token names its cluster. Whose path names another one gets 403, and an NC of another cluster is as
unknown as one that never was: 404.
"""

import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web

from subnetes.dnc import routes
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import BadRequest, Broken, DncError, NotYours, SubnetUnknown, Unauthorized
from subnetes.dnc.openapi import document
from subnetes.dnc.routes import ROUTES, Done, ErrorBody, Freed
from subnetes.dnc.tokens import Tokens
from subnetes.dnc.types import Declaration, SubnetKey, Utilization, Waiter

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[Any]]

_LARGEST = 32 * 1024 * 1024  # bytes of a body: an adoption of many NCs
_ID = re.compile(r"[A-Za-z0-9._~:/()@-]{1,512}")
_OPEN = ("/healthz", "/openapi.json")


@asynccontextmanager
async def serving(
    allocator: Allocator, tokens: Tokens, host: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Listens while the block runs; its URL. Requests under way are answered before it ends."""
    runner = web.AppRunner(application(allocator, tokens), access_log=None, shutdown_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=context).start()
        shown = f"[{host}]" if ":" in host else host
        yield f"{'https' if context else 'http'}://{shown}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def application(allocator: Allocator, tokens: Tokens) -> web.Application:
    app = web.Application(client_max_size=_LARGEST, middlewares=[_errors, _Door(tokens).middleware])
    served = _Served(allocator)
    for operation, route in ROUTES.items():
        handler: Handler = getattr(served, re.sub(r"(NC|[A-Z])", lambda m: f"_{m[0].lower()}", operation))
        # A segment may be empty here, so that a missing id is a bad one (400) and no unknown route (404).
        app.router.add_route(route.method, re.sub(r"{(\w+)}", r"{\1:[^/]*}", route.path), _answering(handler))
    text = msgspec.json.encode(document(version("subnetes")))
    app.router.add_get("/openapi.json", _constant(text))
    app.router.add_get("/healthz", _constant(b'{"status":"ok"}'))
    return app


class _Served:
    """One method an operation of `routes.py`."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    async def utilization(self, request: web.Request) -> Utilization:
        network, name = _network(request), _id(request, "subnet")
        asked = request.query.get("family")
        if asked is not None:
            return await self._allocator.utilization(SubnetKey(network, name, _family(asked)))
        try:
            return await self._allocator.utilization(SubnetKey(network, name, 4))
        except SubnetUnknown:
            return await self._allocator.utilization(SubnetKey(network, name, 6))

    async def subnets(self, _: web.Request) -> Any:
        return await self._allocator.subnets()

    async def ensure_subnet(self, request: web.Request) -> Utilization:
        body = await _body(request, routes.SubnetBody)
        declaration = Declaration(_key(request), body.cidr, body.gateway, body.exclude)
        return await self._allocator.ensure_subnet(declaration)

    async def delete_subnet(self, request: web.Request) -> Done:
        await self._allocator.delete_subnet(_key(request))
        return Done()

    async def waiting(self, request: web.Request) -> list[Waiter]:
        cluster = _id(request, "cluster")
        return [each for each in await self._allocator.waiting(_key(request)) if each.cluster == cluster]

    async def release_wait(self, request: web.Request) -> Done:
        cluster, node = _id(request, "cluster"), _id(request, "node")
        await self._allocator.release_wait(cluster, node, _key(request))
        return Done()

    async def ncs(self, request: web.Request) -> Any:
        return await self._allocator.ncs(_id(request, "cluster"), request.query.get("node"))

    async def ensure_nc(self, request: web.Request) -> Any:
        body = await _body(request, routes.NCBody)
        return await self._allocator.ensure_nc(_id(request, "cluster"), body.node, body.subnet)

    async def nc(self, request: web.Request) -> Any:
        return await self._allocator.nc(_id(request, "cluster"), _id(request, "nc"))

    async def delete_nc(self, request: web.Request) -> Freed:
        return Freed(await self._allocator.delete_nc(_id(request, "cluster"), _id(request, "nc")))

    async def set_secondary(self, request: web.Request) -> Any:
        body = await _body(request, routes.SecondaryBody)
        asked = (_id(request, "cluster"), _id(request, "nc"), body.fence, body.target, body.released)
        return await self._allocator.set_secondary(*asked)

    async def confirm(self, request: web.Request) -> Freed:
        body = await _body(request, routes.ConfirmedBody)
        return Freed(await self._allocator.confirm(_id(request, "cluster"), _id(request, "nc"), body.ids))

    async def adopt(self, request: web.Request) -> Any:
        body = await _body(request, routes.AdoptionBody)
        return await self._allocator.adopt(_id(request, "cluster"), body.ncs)


class _Door:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    @property
    def middleware(self) -> Any:
        @web.middleware
        async def enter(request: web.Request, handler: Handler) -> Any:
            if request.path not in _OPEN:
                self._check(request)
            return await handler(request)

        return enter

    def _check(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        cluster = self._tokens.cluster_of(token.strip()) if scheme.lower() == "bearer" else None
        if cluster is None:
            raise Unauthorized("send the cluster's token: Authorization: Bearer TOKEN")
        if request.match_info.get("cluster", cluster) != cluster:
            raise NotYours(f"the token is that of cluster {cluster}, which sees and changes only its own")


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> Any:
    try:
        return await handler(request)
    except DncError as problem:
        return _refusal(problem, problem.status)
    except web.HTTPException as problem:  # no such route or method, a body that is too large
        text = f"{request.method} {request.path[:200]}: {problem.reason}"
        return _refusal(BadRequest(text), problem.status)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return _refusal(Broken("an error of DNC itself; its log says more"), Broken.status)


def _refusal(problem: DncError, status: int) -> web.Response:
    body = ErrorBody(problem.reason, problem.message, problem.addresses)
    headers = {"WWW-Authenticate": "Bearer"} if status == Unauthorized.status else None
    return _json(body, status, headers)


def _answering(handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return _json(await handler(request))

    return answer


def _constant(text: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type="application/json")

    return answer


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    text = msgspec.json.encode(value)
    return web.Response(body=text, status=status, headers=headers, content_type="application/json")


async def _body(request: web.Request, kind: type[msgspec.Struct] | Any) -> Any:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadRequest(
            f"the body is not what {request.method} {request.path} takes: {problem}"
        ) from problem


def _id(request: web.Request, name: str) -> str:
    text = request.match_info[name]
    if not _ID.fullmatch(text):
        raise BadRequest(f"{text[:60]!r} is no {name} id: letters, digits and . _ ~ : / ( ) @ - only")
    return text


def _network(request: web.Request) -> str:
    network = _id(request, "network")
    return "" if network == routes.NO_NETWORK else network


def _key(request: web.Request) -> SubnetKey:
    return SubnetKey(_network(request), _id(request, "subnet"), _family(request.match_info["family"]))


def _family(text: str) -> int:
    if text not in ("4", "6"):
        raise BadRequest(f"the family of a subnet is 4 or 6, not {text[:20]!r}")
    return int(text)
