"""Reading and writing objects: the store, conversion and the rules of admission, put together.

Handlers of requests and the collector go through here, so both obey the same rules. Every committed change is
told to the listeners in order and before anything else can happen: the hub, the registry, the collector.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from subnetes.apiserver import admission, causes, definitions
from subnetes.apiserver.admission import DeleteOptions
from subnetes.apiserver.builtins import CRDS, NAMESPACE, PROTECTED_NAMESPACES
from subnetes.apiserver.conversion import Converter
from subnetes.apiserver.definitions import Endpoint, Stored
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.registry import Registry
from subnetes.apiserver.status import (
    already_exists,
    conflict,
    forbidden,
    invalid,
    no_such_resource,
    not_found,
)
from subnetes.apiserver.store import Change, Exists, Missing, Row, Stale, Store

Listener = Callable[[Change, Object, Object | None], None]
Edit = Callable[[Object], Object]
ATTEMPTS = 10  # a patch is applied again when another write came between, as often as the real server does it


@dataclass(frozen=True, slots=True)
class Objects:
    store: Store
    registry: Registry
    converter: Converter
    listeners: list[Listener] = field(default_factory=list)

    def row(self, endpoint: Endpoint, namespace: str, name: str) -> Row:
        row = self.store.get(endpoint.served.key, endpoint.key(namespace, name))
        if row is None:
            raise not_found(endpoint.served.resource, name)
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
        obj = admission.created(endpoint, draft, _now(), str(uuid.uuid4()))
        name = obj["metadata"]["name"]
        stored = await self._storable(endpoint, obj)
        self._check_home(endpoint, namespace, name)  # again: a conversion takes its time
        key = endpoint.key(namespace, name)
        if dry and self.store.get(endpoint.served.key, key) is None:
            return orjson.dumps(obj)
        try:
            row = self.store.create(endpoint.served.key, key, stored)
        except Exists:
            taken = orjson.loads(self.row(endpoint, namespace, name).value)
            before = "object is being deleted: " if admission.is_terminating(taken) else ""
            raise already_exists(endpoint.served.resource, name, before) from None
        self._announce(Change(row.rv, endpoint.served.key, key, row.value, False, None), stored, None)
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
        apply = admission.status_updated if status else admission.updated
        for _ in range(ATTEMPTS):
            row = self.row(endpoint, namespace, name)
            old = (await self.decode(endpoint, [row]))[0]
            new = apply(endpoint, edit(orjson.loads(orjson.dumps(old))), old)
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
        raise conflict(endpoint.served.resource, name)

    def delete(self, endpoint: Endpoint, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
        """The object as it is after the request, and whether it is gone."""
        old = orjson.loads(row.value)
        name = old["metadata"]["name"]
        if endpoint.served.resource == NAMESPACE and name in PROTECTED_NAMESPACES:
            raise forbidden(NAMESPACE, name, "this namespace may not be deleted")
        admission.check_preconditions(endpoint, old["metadata"], options.preconditions)
        new = admission.deleted(endpoint, old, options, datetime.now(UTC))
        gone = admission.is_finished(endpoint, new)
        if options.dry_run or (new == old and not gone):
            return Row(row.rv, row.key, orjson.dumps(new)), gone
        return self._commit(endpoint, row, new, old, gone), gone

    def replace(self, endpoint: Endpoint, row: Row, stored: Object) -> Row:
        """Store a new state, or end the object if that was all that its deletion waited for."""
        old = orjson.loads(row.value)
        gone = admission.is_terminating(stored) and admission.is_finished(endpoint, stored)
        return row if stored == old and not gone else self._commit(endpoint, row, stored, old, gone)

    def _commit(self, endpoint: Endpoint, row: Row, new: Object, old: Object, gone: bool) -> Row:
        resource = endpoint.served.key
        commit = self.store.delete if gone else self.store.update
        written = commit(resource, row.key, new, row.rv)
        self._announce(Change(written.rv, resource, row.key, written.value, gone, row.value), new, old)
        return written

    def _announce(self, change: Change, new: Object, old: Object | None) -> None:
        for listener in self.listeners:
            listener(change, new, old)

    async def _storable(self, endpoint: Endpoint, obj: Object) -> Object:
        """The object in the storage version, its apiVersion first (`Endpoint.are_current` looks there)."""
        if endpoint.served.key == CRDS:
            self._check_kind_is_free(obj)
            obj["status"] = definitions.status(obj, _now())
            _check_usable(obj)
        converted = (await self.converter.convert(endpoint, [obj], endpoint.stored))[0]
        return {"apiVersion": endpoint.stored, "kind": converted["kind"]} | converted

    def _check_kind_is_free(self, crd: Object) -> None:
        group, kind, name = crd["spec"]["group"], crd["spec"]["names"]["kind"], crd["metadata"]["name"]
        other = self.registry.of_kind(group, kind)
        if other is not None and other.served.key != name:
            cause = causes.invalid((None, "spec.names.kind"), kind, f"already in use by {other.served.key}")
            raise invalid(crd["kind"], "apiextensions.k8s.io", name, [cause])

    def _check_home(self, endpoint: Endpoint, namespace: str, name: str) -> None:
        """A new object needs a definition and a namespace that are there to stay."""
        resource = endpoint.served.resource
        current = self.registry.find(resource.group, resource.version, resource.plural)
        if current is None or current.served.resource != resource:
            raise no_such_resource()
        if current.terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource, name, why)
        if not resource.namespaced:
            return
        row = self.store.get("namespaces", namespace)
        if row is None:
            raise not_found(NAMESPACE, namespace)
        if admission.is_terminating(orjson.loads(row.value)):
            why = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": why, "field": "metadata.namespace"}
            raise forbidden(resource, name, f"unable to create new content because {why}", causes=[cause])


def _check_usable(crd: Object) -> None:
    """What cannot be installed must not be stored: it would fail again at each start."""
    try:
        definitions.endpoints(crd, 0)
    except Exception as problem:  # a schema is written freely, and can trip its compiler in any way
        why = f"cannot be served: {type(problem).__name__}: {problem}"
        cause = causes.invalid((None, "spec"), crd["spec"]["names"]["kind"], why)
        raise invalid(crd["kind"], "apiextensions.k8s.io", crd["metadata"]["name"], [cause]) from problem


def _now() -> str:
    return admission.timestamp(datetime.now(UTC))
