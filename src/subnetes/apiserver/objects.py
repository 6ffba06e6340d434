"""Reading and writing objects: the store, conversion and the rules of admission, put together.

Handlers of requests and the collector go through here, so both obey the same rules. Every committed change is
told to the listeners in order and before anything else can happen: the hub, the registry, the collector.
"""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from subnetes.apiserver import admission, definitions
from subnetes.apiserver.admission import DeleteOptions, Draft
from subnetes.apiserver.builtins import CRDS, PROTECTED_NAMESPACES
from subnetes.apiserver.conversion import Converter
from subnetes.apiserver.definitions import Endpoint, Stored
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.registry import Registry
from subnetes.apiserver.status import Failure, already_exists, conflict, forbidden, not_found
from subnetes.apiserver.store import Change, Exists, Missing, Row, Stale, Store

Listener = Callable[[Change, Object, Object | None], None]
Edit = Callable[[Object], Draft]
ATTEMPTS = 10  # a patch is applied again when another write came between, as often as the real server does it


class Objects:
    def __init__(self, store: Store, registry: Registry, converter: Converter) -> None:
        self.store = store
        self.registry = registry
        self.converter = converter
        self.listeners: list[Listener] = []

    def row(self, endpoint: Endpoint, namespace: str, name: str) -> Row:
        row = self.store.get(endpoint.served.key, endpoint.key(namespace, name))
        if row is None:
            resource = endpoint.served.resource
            raise not_found(resource.plural, resource.group, name)
        return row

    async def render(self, endpoint: Endpoint, rows: Sequence[Stored]) -> list[bytes]:
        """Stored rows as JSON in the endpoint's version; those that are in it stay untouched."""
        if endpoint.are_current(rows):
            return [row.value for row in rows]
        return [orjson.dumps(obj) for obj in await self.decode(endpoint, rows)]

    async def decode(self, endpoint: Endpoint, rows: Sequence[Stored]) -> list[Object]:
        """The same as objects."""
        stored = [orjson.loads(row.value) for row in rows]
        objects = await self.converter.convert(endpoint, stored, endpoint.served.resource.api_version)
        for row, obj in zip(rows, objects, strict=True):
            if endpoint.schema is not None and row.rv < endpoint.since:
                endpoint.schema.prune(obj)
                endpoint.schema.default(obj)
        return objects

    async def create(self, endpoint: Endpoint, namespace: str, draft: Object, *, dry: bool = False) -> bytes:
        self._check_home(endpoint, namespace, draft["metadata"].get("name", ""))
        if namespace:
            draft["metadata"]["namespace"] = namespace
        obj = admission.created(endpoint, draft, admission.timestamp(_now()), str(uuid.uuid4()))
        resource, name = endpoint.served.resource, obj["metadata"]["name"]
        if endpoint.terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource.plural, resource.group, name, why)
        stored = await self._storable(endpoint, obj)
        key = endpoint.key(namespace, name)
        if dry and self.store.get(endpoint.served.key, key) is None:
            return orjson.dumps(obj)
        try:
            row = self.store.create(endpoint.served.key, key, stored)
        except Exists:
            raise self._taken(endpoint, key, name) from None
        self._announce(endpoint, row, stored, None)
        return (await self.render(endpoint, [row]))[0]

    async def update(
        self,
        endpoint: Endpoint,
        namespace: str,
        name: str,
        edit: Edit,
        *,
        status: bool = False,
        dry: bool = False,
    ) -> bytes:
        """Change an object with `edit`, which may be called again if another write came between."""
        for _ in range(ATTEMPTS):
            row = self.row(endpoint, namespace, name)
            old = (await self.decode(endpoint, [row]))[0]
            draft = edit(orjson.loads(orjson.dumps(old)))
            apply = admission.status_updated if status else admission.updated
            new = apply(endpoint, draft.obj, old)
            if new == old and endpoint.are_current([row]):
                return row.value
            stored = await self._storable(endpoint, new)
            if dry:
                return orjson.dumps(new)
            try:
                written = self.replace(endpoint, row, stored)
            except (Stale, Missing):
                continue
            return (await self.render(endpoint, [written]))[0]
        resource = endpoint.served.resource
        raise conflict(resource.plural, resource.group, name)

    def delete(self, endpoint: Endpoint, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
        """The object as it is after the request, and whether it is gone."""
        old = orjson.loads(row.value)
        name = old["metadata"]["name"]
        if endpoint.served.key == "namespaces" and name in PROTECTED_NAMESPACES:
            raise forbidden("namespaces", "", name, "this namespace may not be deleted")
        admission.check_preconditions(endpoint, old["metadata"], options)
        new = admission.deleted(endpoint, old, options, _now())
        gone = admission.is_finished(new)
        if options.dry or (new == old and not gone):
            return Row(row.rv, row.key, orjson.dumps(new)), gone
        commit = self.store.delete if gone else self.store.update
        written = commit(endpoint.served.key, row.key, new, row.rv)
        self._announce(endpoint, written, new, old, deleted=gone, before=row.value)
        return written, gone

    def replace(self, endpoint: Endpoint, row: Row, stored: Object) -> Row:
        """Store a new state, or end the object if that was all that its deletion waited for."""
        old = orjson.loads(row.value)
        gone = admission.ends(stored)
        if not gone and stored == old:
            return row
        commit = self.store.delete if gone else self.store.update
        written = commit(endpoint.served.key, row.key, stored, row.rv)
        self._announce(endpoint, written, stored, old, deleted=gone, before=row.value)
        return written

    async def _storable(self, endpoint: Endpoint, obj: Object) -> Object:
        """The object in the storage version, its apiVersion first (`Endpoint.are_current` looks there)."""
        if endpoint.served.key == CRDS:
            now = admission.timestamp(_now())
            obj["status"] = definitions.status(obj, self.registry.others(obj), now)
        converted = (await self.converter.convert(endpoint, [obj], endpoint.stored))[0]
        return {"apiVersion": endpoint.stored, "kind": converted["kind"]} | converted

    def _announce(
        self,
        endpoint: Endpoint,
        row: Row,
        new: Object,
        old: Object | None,
        *,
        deleted: bool = False,
        before: bytes | None = None,
    ) -> None:
        change = Change(row.rv, endpoint.served.key, row.key, row.value, deleted, before)
        for listener in self.listeners:
            listener(change, new, old)

    def _taken(self, endpoint: Endpoint, key: str, name: str) -> Failure:
        resource = endpoint.served.resource
        failure = already_exists(resource.plural, resource.group, name)
        row = self.store.get(endpoint.served.key, key)
        if row is not None and admission.is_terminating(orjson.loads(row.value)):
            failure.message = f"object is being deleted: {failure.message}"
        return failure

    def _check_home(self, endpoint: Endpoint, namespace: str, name: str) -> None:
        """A namespaced object needs a namespace that is there to stay."""
        if not endpoint.served.resource.namespaced:
            return
        row = self.store.get("namespaces", namespace)
        if row is None:
            raise not_found("namespaces", "", namespace)
        home: dict[str, Any] = orjson.loads(row.value)
        if admission.is_terminating(home):
            resource = endpoint.served.resource
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(resource.plural, resource.group, name, why, [cause])


def _now() -> datetime:
    return datetime.now(UTC)
