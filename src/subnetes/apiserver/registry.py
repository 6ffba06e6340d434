"""What is served at this moment: the core kinds, and the kinds of every CRD.

Objects of a CRD are its persistent form; the registry is rebuilt from them at start and follows each change.
"""

import logging

from subnetes.apiserver import definitions
from subnetes.apiserver.builtins import BUILTINS, DEFINITIONS
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.resources import Served

log = logging.getLogger(__name__)


class Registry:
    def __init__(self) -> None:
        self._endpoints: dict[tuple[str, str, str], Endpoint] = {}
        self._stored: dict[str, Endpoint] = {}  # by key: the storage version, served or not
        self._definitions: dict[str, Object] = {}
        self._since: dict[str, int] = {}  # CRD → the revision of its present schemas
        for builtin in BUILTINS:
            self._add(Endpoint(builtin.served, builtin.rules, builtin.served.resource.api_version))
        self._add(Endpoint(DEFINITIONS, definitions.RULES, DEFINITIONS.resource.api_version))

    def find(self, group: str, version: str, plural: str) -> Endpoint | None:
        return self._endpoints.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Endpoint | None:
        """The storage version of a kind, for those who only want to find objects."""
        wanted, found = (group, kind), self._stored.values()
        return next((e for e in found if (e.served.resource.group, e.served.resource.kind) == wanted), None)

    def of_key(self, key: str) -> Endpoint | None:
        return self._stored.get(key)

    def served(self) -> list[Served]:
        return [endpoint.served for endpoint in self._endpoints.values()]

    def install(self, crd: Object) -> bool:
        """Serve what this CRD declares; answers whether that differs from what it declared before."""
        name = crd["metadata"]["name"]
        before = self._definitions.get(name)
        same = before is not None and before["spec"]["versions"] == crd["spec"]["versions"]
        since = self._since[name] if same else int(crd["metadata"]["resourceVersion"])
        self.remove(crd)
        self._definitions[name], self._since[name] = crd, since
        for endpoint, version in zip(_endpoints(crd, since), crd["spec"]["versions"], strict=False):
            self._add(endpoint, served=bool(version.get("served")))
            for rule in endpoint.schema.unenforced if endpoint.schema and not same else ():
                log.warning("%s: only a real Kubernetes enforces this: %s", name, rule)
        return before is not None and before["spec"] != crd["spec"]

    def remove(self, crd: Object) -> None:
        name = crd["metadata"]["name"]
        self._definitions.pop(name, None)
        self._since.pop(name, None)
        self._stored.pop(name, None)
        self._endpoints = {at: each for at, each in self._endpoints.items() if each.served.key != name}

    def _add(self, endpoint: Endpoint, *, served: bool = True) -> None:
        resource = endpoint.served.resource
        if resource.api_version == endpoint.stored:
            self._stored[endpoint.served.key] = endpoint
        if served:
            self._endpoints[resource.group, resource.version, resource.plural] = endpoint


def _endpoints(crd: Object, since: int) -> list[Endpoint]:
    try:
        return definitions.endpoints(crd, since)
    except Exception:  # a CRD that an older release let in must not keep the server from starting
        log.exception("%s cannot be served", crd["metadata"]["name"])
        return []
