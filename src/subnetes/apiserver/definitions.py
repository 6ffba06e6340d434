"""CustomResourceDefinitions as data: what is wrong with one, what the server adds to it, what it serves.

Pure; `registry.py` keeps the result, `admission.py` calls `prepare` and `problems` when a CRD is written.
Structural rules beyond these are left to a real API server, which checks our generated CRDs in the tests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from subnetes.api.resource import Resource
from subnetes.apiserver import causes
from subnetes.apiserver.builtins import CUSTOM, Rules
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.resources import Column, Served
from subnetes.apiserver.schema import Schema
from subnetes.apiserver.status import Cause

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_AGE = Column("Age", "date", ".metadata.creationTimestamp")


class Stored(Protocol):
    """A row of the store, or an event made from one."""

    @property
    def rv(self) -> int: ...
    @property
    def value(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """All that a request needs to know about the version of the resource that it names."""

    served: Served
    rules: Rules
    stored: str  # the apiVersion that objects are stored in
    schemas: Mapping[str, Schema] = field(default_factory=dict)  # by apiVersion
    conversion: Mapping[str, Any] = field(default_factory=dict)
    since: int = 0  # the revision that brought these schemas; what is older may lack their defaults
    terminating: bool = False  # its definition is being deleted

    @property
    def schema(self) -> Schema | None:
        return self.schemas.get(self.served.resource.api_version)

    def are_current(self, rows: Sequence[Stored]) -> bool:
        """Whether rows can be served as they are: in this version (they begin with it), by its schema."""
        begin = b'{"apiVersion":"%s",' % self.served.resource.api_version.encode()
        return all(row.rv >= self.since and row.value.startswith(begin) for row in rows)

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.served.resource.namespaced else name


def problems(crd: Object, old: Object | None) -> list[Cause]:
    spec = crd.get("spec") or {}
    crd_names, versions = spec.get("names") or {}, spec.get("versions") or []
    name = crd["metadata"].get("name", "")
    absent = [f"spec.{key}" for key in ("group", "scope", "versions") if not spec.get(key)]
    absent += [f"spec.names.{key}" for key in ("plural", "kind") if not crd_names.get(key)]
    if absent:
        return [causes.required((None, path)) for path in absent]
    found: list[Cause] = []
    if name != f"{crd_names['plural']}.{spec['group']}":
        found.append(
            causes.invalid((None, "metadata.name"), name, 'must be spec.names.plural+"."+spec.group')
        )
    if spec["scope"] not in ("Namespaced", "Cluster"):
        found.append(causes.unsupported((None, "spec.scope"), spec["scope"], ["Cluster", "Namespaced"]))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(causes.invalid((None, "spec.versions"), [v.get("name") for v in versions], why))
    for index, version in enumerate(versions):
        path = (None, f"spec.versions[{index}].schema.openAPIV3Schema")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        found += _unstructured(schema, path) if schema else [causes.required(path)]
    return found + (_changed(spec, old["spec"]) if old else []) + _lost_versions(crd)


def _unstructured(schema: Object, path: causes.Path) -> list[Cause]:
    """Every value needs a type, or nobody could prune or default it."""
    untyped = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    found: list[Cause] = []
    if not schema.get("type") and not any(schema.get(key) for key in untyped):
        found.append(causes.required((path, "type"), "must not be empty for specified object fields"))
    for name, below in (schema.get("properties") or {}).items():
        found += _unstructured(below, ((path, "properties"), causes.Key(name)))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += _unstructured(schema[key], (path, key))
    return found


def _lost_versions(crd: Object) -> list[Cause]:
    """A version that objects may be stored in has to stay until they were rewritten."""
    declared = {version["name"] for version in crd["spec"]["versions"]}
    stored = (crd.get("status") or {}).get("storedVersions", [])
    why = (
        "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions "
        "until a storage migration ensures no data remains persisted in {0} and removes {0} from "
        "status.storedVersions"
    )
    return [
        causes.invalid((None, f"status.storedVersions[{index}]"), version, why.format(version))
        for index, version in enumerate(stored)
        if version not in declared
    ]


def _changed(spec: Object, old: Object) -> list[Cause]:
    """What stays as it is once objects exist by it."""
    pairs = {
        "spec.scope": (spec["scope"], old["scope"]),
        "spec.names.kind": (spec["names"]["kind"], old["names"]["kind"]),
    }
    wrong = [(path, new) for path, (new, was) in pairs.items() if new != was]
    return [causes.invalid((None, path), new, "field is immutable") for path, new in wrong]


def prepare(new: Object, _old: Object | None) -> None:
    """Fill in the defaults of a CRD, as the API server does."""
    spec = new.get("spec") or {}
    crd_names = spec.get("names") or {}
    crd_names.setdefault("singular", str(crd_names.get("kind", "")).lower())
    crd_names.setdefault("listKind", f"{crd_names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _mark(crd: Object) -> None:
    """A deleted CRD waits until the collector has deleted its objects."""
    finalizers = crd["metadata"].get("finalizers", [])
    crd["metadata"]["finalizers"] = [*finalizers, CLEANUP] if CLEANUP not in finalizers else finalizers


RULES = Rules(prepare=prepare, generation=True, needs_version=True, mark=_mark)


def status(crd: Object, others: Iterable[Object], now: str) -> Object:
    """What the server says about a CRD: whether its names are free, and which versions were ever stored."""
    spec, before = crd["spec"], crd.get("status") or {}
    conflict = _name_conflict(spec, others)
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    stored = before.get("storedVersions") or []
    accepted = _condition("NamesAccepted", not conflict, conflict or ("NoConflicts", "no conflicts found"))
    reason = ("NotAccepted", "not all names are accepted")
    established = _condition(
        "Established",
        not conflict,
        reason if conflict else ("InitialNamesAccepted", "the initial names have been accepted"),
    )
    conditions = [_since(each, before.get("conditions", []), now) for each in (accepted, established)]
    return {
        "conditions": conditions,
        "acceptedNames": before.get("acceptedNames", {"plural": "", "kind": ""})
        if conflict
        else spec["names"],
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def endpoints(crd: Object, since: int) -> list[Endpoint]:
    """One endpoint a served version, its schema in force since that revision."""
    spec = crd["spec"]
    group = spec["group"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    schemas = {f"{group}/{v['name']}": Schema(v["schema"]["openAPIV3Schema"]) for v in spec["versions"]}
    return [
        Endpoint(
            served=_served(spec, version, storage),
            rules=CUSTOM,
            stored=f"{group}/{storage}",
            schemas=schemas,
            conversion=spec.get("conversion", {}),
            since=since,
            terminating="deletionTimestamp" in crd["metadata"],
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _served(spec: Object, version: Object, storage: str) -> Served:
    crd_names = spec["names"]
    declared = version.get("additionalPrinterColumns")
    return Served(
        resource=Resource(
            spec["group"],
            version["name"],
            crd_names["kind"],
            crd_names["plural"],
            spec["scope"] == "Namespaced",
        ),
        singular=crd_names["singular"],
        list_kind=crd_names["listKind"],
        short_names=tuple(crd_names.get("shortNames", ())),
        categories=tuple(crd_names.get("categories", ())),
        status_subresource="status" in version.get("subresources", {}),
        storage_version=storage,
        columns=tuple(map(_column, declared)) if declared else (_AGE,),
        selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields", ())),
        openapi=version["schema"]["openAPIV3Schema"],
    )


def _column(declared: Object) -> Column:
    return Column(
        name=declared["name"],
        type=declared["type"],
        json_path=declared["jsonPath"],
        description=declared.get("description", ""),
        format=declared.get("format", ""),
        priority=declared.get("priority", 0),
    )


def _name_conflict(spec: Object, others: Iterable[Object]) -> tuple[str, str] | None:
    """The reason and message if another CRD of the group has one of these names."""
    taken: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        accepted = (other.get("status") or {}).get("acceptedNames", {})
        if other["spec"]["group"] == spec["group"]:
            taken |= {
                accepted.get("plural", ""),
                accepted.get("singular", ""),
                *accepted.get("shortNames", ()),
            }
            kinds |= {accepted.get("kind", ""), accepted.get("listKind", "")}
    crd_names = spec["names"]
    checks = (
        ("PluralConflict", [crd_names["plural"]], taken),
        ("SingularConflict", [crd_names["singular"]], taken),
        ("ShortNamesConflict", crd_names.get("shortNames", []), taken),
        ("KindConflict", [crd_names["kind"]], kinds),
        ("ListKindConflict", [crd_names["listKind"]], kinds),
    )
    found = [
        (reason, f'"{each}" is already in use')
        for reason, wanted, used in checks
        for each in wanted
        if each in used
    ]
    return found[0] if found else None


def _condition(kind: str, true: bool, why: tuple[str, str]) -> Object:
    return {"type": kind, "status": "True" if true else "False", "reason": why[0], "message": why[1]}


def _since(condition: Object, before: list[Object], now: str) -> Object:
    same = [old for old in before if (old["type"], old["status"]) == (condition["type"], condition["status"])]
    return condition | {"lastTransitionTime": same[0]["lastTransitionTime"] if same else now}
