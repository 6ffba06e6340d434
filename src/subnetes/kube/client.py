"""The Kubernetes API as typed calls: what every controller, agent and tool of ours speaks through.

A kind is an `Object` or `View` class (answers are decoded into it) or a `Resource` (answers are plain
dictionaries). Views are windows on what others own, so they can be read, patched and deleted, but neither
created nor updated. Requests, retries and credentials are transport.py's business, bytes are codec.py's, and
everything that can go wrong is drawn in errors.py.
"""

import random
from collections.abc import AsyncGenerator
from typing import Any, Literal, Required, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from subnetes.api.meta import Object
from subnetes.api.model import View, encode
from subnetes.api.resource import Resource
from subnetes.kube.codec import Listing, Untyped, WatchEvent, codec_of
from subnetes.kube.credentials import Credentials
from subnetes.kube.errors import Gone
from subnetes.kube.patches import Patch, manager_query
from subnetes.kube.transport import Transport
from subnetes.kube.urls import path_of, query

K = TypeVar("K", bound=Object | View)
W = TypeVar("W", bound=Object)
Propagation = Literal["Foreground", "Background", "Orphan"]

PAGE_SIZE = 500
WATCH_SECONDS = 300  # at least, and at most twice as long: those who began together do not end together


class ListOptions(TypedDict, total=False):
    """`resource_version`: absent means a quorum read, else at least that new; `page_size` 0: one page."""

    label_selector: str
    field_selector: str
    resource_version: str | None
    page_size: int


class WatchOptions(TypedDict, total=False):
    resource_version: Required[str]
    label_selector: str
    field_selector: str
    timeout_seconds: int


class Client:
    """One API server, one identity. Use as an async context manager, or call `close`."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        field_manager: str = "subnetes",
        user_agent: str = "subnetes",
        deadline: float = 30.0,
    ) -> None:
        self.namespace = credentials.namespace
        self._transport = Transport(credentials, user_agent=user_agent, deadline=deadline)
        self._field_manager = field_manager

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    @overload
    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...
    @overload
    async def get(self, kind: Resource, name: str, namespace: str | None = None) -> Untyped: ...
    async def get(self, kind: type[K] | Resource, name: str, namespace: str | None = None) -> Any:
        """The object as the quorum knows it."""
        codec = codec_of(kind)
        return codec.object(await self._transport.call("GET", path_of(codec.resource, namespace, name)))

    @overload
    async def list(
        self, kind: type[K], namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> Listing[K]: ...
    @overload
    async def list(
        self, kind: Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> Listing[Untyped]: ...
    async def list(
        self, kind: type[K] | Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> Listing[Any]:
        """All pages as one.

        A continue token can expire between two pages of a large and busy collection; then everything is asked
        for at once, which cannot be overtaken.
        """
        try:
            pages = [page async for page in self.pages(kind, namespace, **options)]
        except Gone:
            options["page_size"] = 0
            pages = [page async for page in self.pages(kind, namespace, **options)]
        return Listing([item for page in pages for item in page.items], pages[-1].resource_version)

    @overload
    def pages(
        self, kind: type[K], namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[Listing[K], None]: ...
    @overload
    def pages(
        self, kind: Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[Listing[Untyped], None]: ...
    async def pages(
        self, kind: type[K] | Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[Listing[Any], None]:
        """One page at a time; raises Gone when the token for the next one has expired."""
        codec = codec_of(kind)
        path = path_of(codec.resource, namespace)
        every_page, first_page = _page_queries(options)
        page = codec.listing(await self._transport.call("GET", path, query(every_page | first_page)))
        yield page
        while page.continue_token:
            following = query(every_page | {"continue": page.continue_token})
            page = codec.listing(await self._transport.call("GET", path, following))
            yield page

    @overload
    def watch(
        self, kind: type[K], namespace: str | None = None, **options: Unpack[WatchOptions]
    ) -> AsyncGenerator[WatchEvent[K], None]: ...
    @overload
    def watch(
        self, kind: Resource, namespace: str | None = None, **options: Unpack[WatchOptions]
    ) -> AsyncGenerator[WatchEvent[Untyped], None]: ...
    async def watch(
        self, kind: type[K] | Resource, namespace: str | None = None, **options: Unpack[WatchOptions]
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        """What happens after `resource_version`, until the server's `timeout_seconds` end the iteration.

        Raises Gone when that version is compacted, Unavailable when the connection is lost or falls silent.
        Whoever leaves before the end closes the iterator (`contextlib.aclosing`).
        """
        codec = codec_of(kind)
        path = path_of(codec.resource, namespace)
        lasting = options.get("timeout_seconds", random.randint(WATCH_SECONDS, 2 * WATCH_SECONDS))
        async with self._transport.stream(path, _watch_query(options, lasting), lasting) as lines:
            async for line in lines:
                yield codec.event(line)

    @overload
    async def create(self, obj: W, *, namespace: str | None = None) -> W: ...
    @overload
    async def create(self, obj: Untyped, *, resource: Resource, namespace: str | None = None) -> Untyped: ...
    async def create(
        self, obj: Object | Untyped, *, resource: Resource | None = None, namespace: str | None = None
    ) -> Any:
        """Make it in its own namespace, else in the one given."""
        codec = codec_of(resource or type(obj))
        path = path_of(codec.resource, _identity(obj)[0] or namespace)
        return codec.object(await self._write("POST", path, obj))

    @overload
    async def update(self, obj: W) -> W: ...
    @overload
    async def update(self, obj: Untyped, *, resource: Resource) -> Untyped: ...
    async def update(self, obj: Object | Untyped, *, resource: Resource | None = None) -> Any:
        """Replace it; a Conflict if it changed since the resourceVersion that it carries."""
        return await self._replace(obj, resource, None)

    @overload
    async def update_status(self, obj: W) -> W: ...
    @overload
    async def update_status(self, obj: Untyped, *, resource: Resource) -> Untyped: ...
    async def update_status(self, obj: Object | Untyped, *, resource: Resource | None = None) -> Any:
        """Replace its status, and nothing else of it."""
        return await self._replace(obj, resource, "status")

    @overload
    async def patch(
        self, kind: type[K], name: str, patch: Patch, namespace: str | None = None, *, subresource: str = ""
    ) -> K: ...
    @overload
    async def patch(
        self, kind: Resource, name: str, patch: Patch, namespace: str | None = None, *, subresource: str = ""
    ) -> Untyped: ...
    async def patch(
        self,
        kind: type[K] | Resource,
        name: str,
        patch: Patch,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Any:
        codec = codec_of(kind)
        path = path_of(codec.resource, namespace, name, subresource)
        parameters, body = patch.query(self._field_manager), patch.body()
        return codec.object(await self._transport.call("PATCH", path, parameters, body, patch.media_type))

    async def delete(
        self,
        kind: type[Object] | type[View] | Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete it; a Conflict if it is another object (`uid`) or another version of it than was meant.

        `grace_seconds` is for pods: 0 ends one at once, which is for its kubelet to say.
        """
        path = path_of(codec_of(kind).resource, namespace, name)
        body = _delete_options(uid, resource_version, propagation, grace_seconds)
        await self._transport.call("DELETE", path, body=body)

    async def post(self, path: str, body: bytes) -> bytes:
        """What is no object of the API server's own: a request through its proxy to a service."""
        return await self._transport.call("POST", path, body=body)

    async def _replace(
        self, obj: Object | Untyped, resource: Resource | None, subresource: str | None
    ) -> Any:
        codec = codec_of(resource or type(obj))
        path = path_of(codec.resource, *_identity(obj), subresource)
        return codec.object(await self._write("PUT", path, obj))

    async def _write(self, method: str, path: str, obj: Object | Untyped) -> bytes:
        body = encode(obj) if isinstance(obj, Object) else msgspec.json.encode(obj)
        return await self._transport.call(method, path, manager_query(self._field_manager), body)


Parameters = dict[str, str | int | None]


def _page_queries(options: ListOptions) -> tuple[Parameters, Parameters]:
    """What every page's request says, and what only the first says: a continue token has its own version."""
    every_page: Parameters = {
        "labelSelector": options.get("label_selector"),
        "fieldSelector": options.get("field_selector"),
        "limit": options.get("page_size", PAGE_SIZE) or None,
    }
    version = options.get("resource_version")
    if version is None:
        return every_page, {}
    return every_page, {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}


def _watch_query(options: WatchOptions, timeout_seconds: int) -> str:
    return query(
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": options["resource_version"],
            "labelSelector": options.get("label_selector"),
            "fieldSelector": options.get("field_selector"),
            "timeoutSeconds": timeout_seconds,
        }
    )


def _identity(obj: Object | Untyped) -> tuple[str | None, str]:
    if isinstance(obj, Object):
        return obj.metadata.namespace, obj.metadata.name
    metadata = obj.get("metadata", {})
    return metadata.get("namespace"), metadata.get("name", "")


def _delete_options(
    uid: str | None,
    resource_version: str | None,
    propagation: Propagation | None,
    grace_seconds: int | None,
) -> bytes | None:
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    stated = {key: value for key, value in preconditions.items() if value}
    options: dict[str, Any] = {"preconditions": stated} if stated else {}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if not options:
        return None
    return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **options})
