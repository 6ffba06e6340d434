"""Every request enters here: who asks, what for, which handler; and every failure leaves as a Status."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import orjson
from aiohttp import web

from subnetes.apiserver import discovery, openapi
from subnetes.apiserver.handlers import asked, reads, writes
from subnetes.apiserver.handlers.answers import answer, answer_failure
from subnetes.apiserver.handlers.asked import PageNotFound, Target
from subnetes.apiserver.handlers.watches import Watches
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import (
    Failure,
    bad_request,
    internal,
    method_not_allowed,
    no_such_resource,
    not_found,
    unauthorized,
    verb_not_supported,
)

log = logging.getLogger(__name__)
Handler = Callable[[Objects, web.BaseRequest, Target], Awaitable[web.StreamResponse]]

_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_NO_OPENAPI_V2 = b"\n\x032.0"  # a document with nothing in it: kubectl asks for kinds that v3 does not know
_HEALTH = ("/healthz", "/livez", "/readyz")
_ON_OBJECT: Mapping[str, Handler] = {
    "GET": reads.get,
    "PUT": writes.replace,
    "PATCH": writes.patch,
    "DELETE": writes.delete,
    "POST": writes.create,
}
_ON_STATUS: Mapping[str, Handler] = {"GET": reads.get, "PUT": writes.replace, "PATCH": writes.patch}
_ON_COLLECTION: Mapping[str, Handler] = {
    "GET": reads.list_all,
    "POST": writes.create,
    "DELETE": writes.delete_collection,
}


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


def _handlers(target: Target) -> Mapping[str, Handler]:
    if not target.subresource:
        if not target.name:
            return _ON_COLLECTION
        custom = target.endpoint.schema is not None
        return _ON_OBJECT if custom else {verb: each for verb, each in _ON_OBJECT.items() if verb != "POST"}
    if target.subresource == "status" and target.endpoint.served.status_subresource:
        return _ON_STATUS
    resource = target.endpoint.served.resource
    if target.endpoint.schema is None:
        raise no_such_resource()
    raise not_found(resource.plural, resource.group, target.name)


@dataclass(frozen=True, slots=True)
class App:
    objects: Objects
    watches: Watches
    tokens: Mapping[str, str]  # token → user

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except Failure as failure:
            return answer_failure(request, failure)
        except PageNotFound:
            return web.Response(status=404, text="404 page not found\n")
        except ConnectionError:
            raise  # the client went away; nobody is there to answer
        except Exception:  # the one place that keeps a bug of ours from reaching a client as a traceback
            log.exception("%s %s failed", request.method, request.path)
            return answer_failure(request, internal("the embedded API server failed; see its log"))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path.startswith(_HEALTH):
            return web.Response(text="ok")
        if path == "/version":
            return _json(request, discovery.version())
        self._authenticate(request)
        if path.startswith(("/api/", "/apis/")) and path.count("/") > (2 if path.startswith("/api/") else 3):
            return await self._resource(request, asked.target(self.objects.registry, path))
        if path == "/debug/compact" and request.method == "POST":
            store = self.objects.store
            store.compact(asked.number(request.query, "revision") or store.revision)
            return _json(request, {"compacted": store.compacted})
        return self._describe(request, path)

    def _authenticate(self, request: web.BaseRequest) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token.strip() not in self.tokens:
            raise unauthorized()

    async def _resource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource = target.endpoint.served.resource
        if target.name and resource.namespaced and not target.namespace:
            raise PageNotFound if target.endpoint.schema else no_such_resource()
        if request.method == "GET" and not target.name and asked.flag(request.query, "watch"):
            return await self.watches.watch(request, target)
        handler = _handlers(target).get(request.method)
        if handler is None:
            raise self._not_allowed(request, target)
        return await handler(self.objects, request, target)

    def _not_allowed(self, request: web.BaseRequest, target: Target) -> Failure:
        resource = target.endpoint.served.resource
        if target.endpoint.schema is None:
            return method_not_allowed()
        if not target.name:
            return bad_request("name must be provided")
        return verb_not_supported(_VERBS.get(request.method, ""), resource.plural, resource.group)

    def _describe(self, request: web.BaseRequest, path: str) -> web.Response:
        """Discovery and OpenAPI: what is served, for clients that ask."""
        served = self.objects.registry.served()
        parts = path.strip("/").split("/")
        found: object = None
        if path == "/api":
            found = discovery.api_versions(request.host)
        elif path == "/apis":
            found = discovery.api_groups(served)
        elif parts[0] == "api":
            found = discovery.api_resources(served, "", parts[1])
        elif parts[0] == "apis":
            described = discovery.api_resources(served, *parts[1:]) if len(parts) == 3 else None
            found = discovery.api_group(served, parts[1]) if len(parts) == 2 else described
        elif path == "/openapi/v2":
            return web.Response(body=_NO_OPENAPI_V2, headers={"Content-Type": _OPENAPI_V2})
        elif path == "/openapi/v3":
            found = openapi.index(served)
        elif path.startswith("/openapi/v3/"):
            found = openapi.document(served, path.removeprefix("/openapi/v3/"))
        if found is None:
            raise no_such_resource() if parts[0] == "api" else PageNotFound
        return _json(request, found)


def _json(request: web.BaseRequest, body: object) -> web.Response:
    return answer(request, orjson.dumps(body))
