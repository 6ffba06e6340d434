"""Deletes what nobody wants any more, as kube-controller-manager does in a real cluster.

- an object whose owners (metadata.ownerReferences) are all gone, or never were; a reference to one that is
  gone is taken out where others live on;
- the content of a namespace that is being deleted, then the namespace;
- the objects of a CustomResourceDefinition that is being deleted, then the definition.

It is told of each committed change and keeps no record of its own: at start everything is looked at once, so
work that a crash interrupted is found again.
"""

import asyncio
import logging
from typing import Any

import orjson

from subnetes.apiserver import admission
from subnetes.apiserver.admission import DeleteOptions
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
        self._emptying: set[Place] = set()  # containers whose content was all asked to go
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Look at everything once."""
        for resource in self._objects.store.resources():
            for row in self._objects.store.scan(resource).rows:
                self._seen((resource, row.key), orjson.loads(row.value), None)

    def changed(self, change: Change, new: Object, old: Object | None) -> None:
        """A listener of `Objects`: note what the change may have made due."""
        self._seen((change.resource, change.key), {} if change.deleted else new, old)
        if change.deleted:
            self._emptying.discard((change.resource, change.key))
            for dependent in self._dependents.get(new["metadata"]["uid"], ()):
                self._enqueue(dependent)
            self._enqueue(("namespaces", new["metadata"].get("namespace", "")))
            self._enqueue((CRDS, change.resource))

    def _seen(self, place: Place, new: Object, old: Object | None) -> None:
        before, after = ({owner["uid"] for owner in _owners(obj)} for obj in (old or {}, new))
        for uid in before - after:
            self._dependents.get(uid, set()).discard(place)
            if not self._dependents.get(uid):
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(place)
        if after or (new and admission.is_terminating(new)):
            self._enqueue(place)

    def _enqueue(self, place: Place) -> None:
        self._due.pop(place, None)  # to the end: what made it due again comes first
        self._due[place] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            while self._due:
                place = next(iter(self._due))
                del self._due[place]
                self._settle(*place)
                await asyncio.sleep(0)  # requests come first
            self._wake.clear()

    def _settle(self, resource: str, key: str) -> None:
        row, endpoint = self._objects.store.get(resource, key), self._objects.registry.of_key(resource)
        if row is None or endpoint is None:
            return
        obj = orjson.loads(row.value)
        try:
            if not admission.is_terminating(obj):
                self._collect(endpoint, row, obj)
            elif resource == "namespaces" and self._is_empty((resource, key), f"{key}/"):
                self._objects.replace(endpoint, row, obj | {"spec": {}})
            elif resource == CRDS and self._is_empty((resource, key)):
                kept = [each for each in obj["metadata"].get("finalizers", []) if each != CLEANUP]
                self._edit(endpoint, row, obj, "finalizers", kept)
        except Failure as failure:
            log.warning("%s %s cannot be collected: %s", resource, key, failure.message)
        except Exception:  # one odd object must not end the collection of all others
            log.exception("%s %s cannot be collected", resource, key)

    def _collect(self, endpoint: Endpoint, row: Row, obj: Object) -> None:
        """Delete an object that lost all its owners; forget those that are gone where one is left."""
        owners = _owners(obj)
        alive = [owner for owner in owners if self._lives(owner, obj["metadata"].get("namespace", ""))]
        if owners and not alive:
            self._objects.delete(endpoint, row, DeleteOptions())
        elif alive != owners:
            self._edit(endpoint, row, obj, "ownerReferences", alive)

    def _lives(self, owner: Object, namespace: str) -> bool:
        """Whether the owner exists where its dependent may name it; what cannot be looked up is alive."""
        endpoint = self._objects.registry.of_kind(owner["apiVersion"].rpartition("/")[0], owner["kind"])
        if endpoint is None or (endpoint.served.resource.namespaced and not namespace):
            return True
        row = self._objects.store.get(endpoint.served.key, endpoint.key(namespace, owner["name"]))
        return row is not None and orjson.loads(row.value)["metadata"]["uid"] == owner["uid"]

    def _is_empty(self, container: Place, prefix: str = "") -> bool:
        """Ask what it holds to go; answers whether there was nothing.

        So a container outlives its content by a round, in which dependents of the content find their owners'
        kinds still known. Nothing new comes into it, hence its content is gone through only once.
        """
        store, key = self._objects.store, container[1]
        held = [key] if container[0] == CRDS else store.resources()
        kinds = [each for each in map(self._objects.registry.of_key, held) if each]
        if container in self._emptying:
            return not any(store.scan(kind.served.key, prefix, limit=1).rows for kind in kinds)
        found = [(kind, row) for kind in kinds for row in store.scan(kind.served.key, prefix).rows]
        for kind, row in found:
            self._objects.delete(kind, row, DeleteOptions())
        self._emptying.add(container)
        return not found

    def _edit(self, endpoint: Endpoint, row: Row, obj: Object, field: str, value: list[Any]) -> None:
        metadata = {key: each for key, each in obj["metadata"].items() if key != field}
        self._objects.replace(endpoint, row, obj | {"metadata": metadata | ({field: value} if value else {})})


def _owners(obj: Object) -> list[Object]:
    owners: list[Object] = obj.get("metadata", {}).get("ownerReferences", [])
    return owners
