"""Deletes what nobody wants any more, as kube-controller-manager does in a real cluster.

- an object whose owners (metadata.ownerReferences) are all gone, or never were; a reference to one that is
  gone is taken out where others live on; deletion in the foreground and orphaning, when a deletion asks so;
- the content of a namespace that is being deleted, then the namespace;
- the objects of a CustomResourceDefinition that is being deleted, then the definition.

It is told of each committed change and keeps no record of its own: at start everything is looked at once, so
work that a crash interrupted is found again.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import orjson

from subnetes.apiserver import admission
from subnetes.apiserver.admission import FOREGROUND, ORPHAN, DeleteOptions
from subnetes.apiserver.builtins import CRDS
from subnetes.apiserver.definitions import CLEANUP, Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.status import Failure
from subnetes.apiserver.store import Change, Row

log = logging.getLogger(__name__)
Place = tuple[str, str]  # resource, key


class Collector:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._dependents: dict[str, set[Place]] = {}  # owner's uid → who names it
        self._due: dict[Place, None] = {}  # ordered, each once
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Look at everything once."""
        for resource in self._objects.store.resources():
            for row in self._objects.store.scan(resource).rows:
                obj = orjson.loads(row.value)
                self._index(resource, row.key, obj, None)
                if _owners(obj) or admission.is_terminating(obj):
                    self._enqueue(resource, row.key)

    def changed(self, change: Change, new: Object, old: Object | None) -> None:
        """A listener of `Objects`: note what the change may have made due."""
        place = (change.resource, change.key)
        self._index(*place, {} if change.deleted else new, old)
        if not change.deleted:
            if _owners(new) or admission.is_terminating(new):
                self._enqueue(*place)
            return
        for dependent in self._dependents.get(new["metadata"]["uid"], ()):
            self._enqueue(*dependent)
        for owner in _owners(new):
            self._enqueue_owner(owner, new["metadata"].get("namespace", ""))
        namespace, slash, _ = change.key.partition("/")
        if slash:
            self._enqueue("namespaces", namespace)
        self._enqueue(CRDS, change.resource)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            while self._due:
                place = next(iter(self._due))
                del self._due[place]
                self._settle(place)
                await asyncio.sleep(0)  # requests come first
            self._wake.clear()

    def _settle(self, place: Place) -> None:
        resource, key = place
        row, endpoint = self._objects.store.get(resource, key), self._objects.registry.of_key(resource)
        if row is None or endpoint is None:
            return
        try:
            self._collect(endpoint, row, orjson.loads(row.value))
        except Failure as failure:
            log.warning("%s %s cannot be collected: %s", resource, key, failure.message)

    def _collect(self, endpoint: Endpoint, row: Row, obj: Object) -> None:
        if not admission.is_terminating(obj):
            self._collect_orphan(endpoint, row, obj)
        elif endpoint.served.key == "namespaces":
            self._empty(endpoint, obj, list(self._in_namespace(row.key)))
        elif endpoint.served.key == CRDS:
            self._empty(
                endpoint, obj, [(row.key, each.key) for each in self._objects.store.scan(row.key).rows]
            )
        else:
            self._finish(endpoint, obj)

    def _collect_orphan(self, endpoint: Endpoint, row: Row, obj: Object) -> None:
        """Delete an object that lost all its owners; forget those that are gone where one is left."""
        owners = _owners(obj)
        gone = [owner for owner in owners if not self._lives(owner, obj)]
        if gone and len(gone) == len(owners):
            self._objects.delete(endpoint, row, DeleteOptions(policy="Background"))
        elif gone:
            self._disown(endpoint, obj, {owner["uid"] for owner in gone})

    def _lives(self, owner: Object, dependent: Object) -> bool:
        """Whether the owner exists where its dependent may name it; what cannot be looked up is alive."""
        found = self._owner_place(owner, dependent["metadata"].get("namespace", ""))
        if found is None:
            return True
        row = self._objects.store.get(*found)
        return row is not None and orjson.loads(row.value)["metadata"]["uid"] == owner["uid"]

    def _owner_place(self, owner: Object, namespace: str) -> Place | None:
        endpoint = self._objects.registry.of_kind(owner["apiVersion"].rpartition("/")[0], owner["kind"])
        if endpoint is None or (endpoint.served.resource.namespaced and not namespace):
            return None
        return endpoint.served.key, endpoint.key(namespace, owner["name"])

    def _finish(self, endpoint: Endpoint, obj: Object) -> None:
        """Do what the finalizers of a deletion's policy stand for."""
        finalizers, uid = obj["metadata"].get("finalizers", []), obj["metadata"]["uid"]
        if ORPHAN in finalizers:
            for place, dependent in self._dependents_of(uid):
                found = self._objects.registry.of_key(place[0])
                if found is not None:
                    self._disown(found, dependent, {uid})
            self._drop_finalizer(endpoint, obj, ORPHAN)
        elif FOREGROUND in finalizers:
            dependents = self._dependents_of(uid)
            for place, _ in dependents:
                self._delete(place)
            blocking = [each for _, each in dependents if _blocks(each, uid)]
            if not blocking:
                self._drop_finalizer(endpoint, obj, FOREGROUND)

    def _empty(self, endpoint: Endpoint, obj: Object, content: list[Place]) -> None:
        """Delete what a namespace or a definition holds; once nothing is left, let it go."""
        for place in content:
            self._delete(place)
        name = obj["metadata"]["name"]
        is_namespace = endpoint.served.key == "namespaces"
        left = (
            any(True for _ in self._in_namespace(name))
            if is_namespace
            else self._objects.store.scan(name, limit=1).rows
        )
        if left:
            return
        if is_namespace:
            row = self._objects.row(endpoint, "", name)
            self._objects.replace(endpoint, row, obj | {"spec": {}})
        else:
            self._drop_finalizer(endpoint, obj, CLEANUP)

    def _in_namespace(self, namespace: str) -> Iterator[Place]:
        for resource in self._objects.store.resources():
            endpoint = self._objects.registry.of_key(resource)
            if endpoint is not None and endpoint.served.resource.namespaced:
                for row in self._objects.store.scan(resource, f"{namespace}/").rows:
                    yield resource, row.key

    def _delete(self, place: Place) -> None:
        row, endpoint = self._objects.store.get(*place), self._objects.registry.of_key(place[0])
        if row is not None and endpoint is not None:
            self._objects.delete(endpoint, row, DeleteOptions(policy="Background"))

    def _disown(self, endpoint: Endpoint, obj: Object, uids: set[str]) -> None:
        kept = [owner for owner in _owners(obj) if owner["uid"] not in uids]
        self._edit(endpoint, obj, "ownerReferences", kept)

    def _drop_finalizer(self, endpoint: Endpoint, obj: Object, finalizer: str) -> None:
        kept = [each for each in obj["metadata"].get("finalizers", []) if each != finalizer]
        self._edit(endpoint, obj, "finalizers", kept)

    def _edit(self, endpoint: Endpoint, obj: Object, field: str, value: list[Any]) -> None:
        row = self._objects.row(endpoint, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        metadata = {key: each for key, each in obj["metadata"].items() if key != field}
        self._objects.replace(endpoint, row, obj | {"metadata": metadata | ({field: value} if value else {})})

    def _dependents_of(self, uid: str) -> list[tuple[Place, Object]]:
        rows = [(place, self._objects.store.get(*place)) for place in self._dependents.get(uid, ())]
        return [(place, orjson.loads(row.value)) for place, row in rows if row is not None]

    def _index(self, resource: str, key: str, new: Object, old: Object | None) -> None:
        before = {owner["uid"] for owner in _owners(old or {})}
        after = {owner["uid"] for owner in _owners(new)}
        for uid in before - after:
            self._dependents.get(uid, set()).discard((resource, key))
            if not self._dependents.get(uid):
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add((resource, key))

    def _enqueue_owner(self, owner: Object, namespace: str) -> None:
        if found := self._owner_place(owner, namespace):
            self._enqueue(*found)

    def _enqueue(self, resource: str, key: str) -> None:
        self._due[resource, key] = None
        self._wake.set()


def _owners(obj: Object) -> list[Object]:
    owners: list[Object] = obj.get("metadata", {}).get("ownerReferences", [])
    return owners


def _blocks(dependent: Object, uid: str) -> bool:
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in _owners(dependent))
