"""Every request enters here: who asks, what for, which handler; and every failure leaves as a Status."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from subnetes.apiserver import discovery, openapi
from subnetes.apiserver.handlers import asked, reads, writes
from subnetes.apiserver.handlers.answers import answer
from subnetes.apiserver.handlers.asked import Target
from subnetes.apiserver.handlers.watches import Watches
from subnetes.apiserver.metrics import Metrics
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import Failure, internal, method_not_allowed, no_such_resource, unauthorized

log = logging.getLogger(__name__)
Handler = Callable[[Objects, web.BaseRequest, Target], Awaitable[web.StreamResponse]]

_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_NO_OPENAPI_V2 = b"\n\x032.0"  # a document with nothing in it: kubectl asks for kinds that v3 does not know
_HEALTH = ("/healthz", "/livez", "/readyz")
_ON_STATUS: Mapping[str, Handler] = {"GET": reads.get, "PUT": writes.replace, "PATCH": writes.patch}
_ON_OBJECT: Mapping[str, Handler] = {**_ON_STATUS, "DELETE": writes.delete}
_ON_COLLECTION: Mapping[str, Handler] = {
    "GET": reads.list_all,
    "POST": writes.create,
    "DELETE": writes.delete_collection,
}


def _handlers(target: Target) -> Mapping[str, Handler]:
    if not target.subresource:
        return _ON_OBJECT if target.name else _ON_COLLECTION
    if target.subresource == "status" and target.endpoint.served.status_subresource:
        return _ON_STATUS
    raise no_such_resource()


@dataclass(frozen=True, slots=True)
class App:
    objects: Objects
    watches: Watches
    tokens: Mapping[str, str]  # token → user
    metrics: Metrics = field(default_factory=Metrics)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except Failure as failure:
            return _refusal(failure)
        except ConnectionError:
            raise  # the client went away; nobody is there to answer
        except Exception:  # the one place that keeps a bug of ours from reaching a client as a traceback
            log.exception("%s %s failed", request.method, request.path)
            return _refusal(internal("the embedded API server failed; see its log"))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path.startswith(_HEALTH):
            return web.Response(text="ok")
        if path == "/version":
            return answer(orjson.dumps(discovery.version()))
        self._authenticate(request)
        if path.startswith(("/api/", "/apis/")) and path.count("/") > (2 if path.startswith("/api/") else 3):
            return await self._counted(request, asked.target(self.objects.registry, path))
        if path == "/openapi/v2":
            return web.Response(body=_NO_OPENAPI_V2, headers={"Content-Type": _OPENAPI_V2})
        if path == "/metrics":
            return web.Response(body=self.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        if path == "/debug/compact" and request.method == "POST":
            store = self.objects.store
            store.compact(asked.number(request.query, "revision") or store.revision)
            return answer(orjson.dumps({"compacted": store.compacted}))
        return answer(orjson.dumps(self._described(request, path.strip("/").split("/"))))

    def _authenticate(self, request: web.BaseRequest) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token.strip() not in self.tokens:
            raise unauthorized()

    async def _counted(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        _handlers(target)  # what is no resource is not counted
        code = 500
        try:
            response = await self._resource(request, target)
            code = response.status
            return response
        except Failure as failure:
            code = failure.code
            raise
        except (asyncio.CancelledError, ConnectionError):
            code = 200  # the client left, which is how most watches end
            raise
        finally:
            self.metrics.request(asked.counted(request, target) | {"code": str(code)})

    async def _resource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if asked.is_watch(request, target):
            return await self.watches.watch(request, target)
        handler = _handlers(target).get(request.method)
        if handler is None:
            raise method_not_allowed()
        return await handler(self.objects, request, target)

    def _described(self, request: web.BaseRequest, parts: list[str]) -> object:
        """Discovery and OpenAPI: what is served, for clients that ask."""
        served = self.objects.registry.served()
        found: object = None
        match parts:
            case ["api"]:
                found = discovery.api_versions(request.host)
            case ["api", version]:
                found = discovery.api_resources(served, "", version)
            case ["apis"]:
                found = discovery.api_groups(served)
            case ["apis", group]:
                found = discovery.api_group(served, group)
            case ["apis", group, version]:
                found = discovery.api_resources(served, group, version)
            case ["openapi", "v3"]:
                found = openapi.index(served)
            case ["openapi", "v3", *rest]:
                found = openapi.document(served, "/".join(rest))
        if found is None:
            raise no_such_resource()
        return found


def _refusal(failure: Failure) -> web.Response:
    return answer(orjson.dumps(failure.status()), failure.code)
