"""CustomResourceDefinitions as data: what is wrong with one, what the server adds to it, what it serves.

Pure; `registry.py` keeps the result, `admission.py` calls `prepare` and `problems` when a CRD is written.
Structural rules beyond these are left to a real API server, which checks our generated CRDs in the tests.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from cryptography import x509

from subnetes.api.resource import Resource
from subnetes.apiserver import causes
from subnetes.apiserver.builtins import BUILTINS, CRDS, CUSTOM, Rules
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.resources import Column, Served
from subnetes.apiserver.schema import Schema
from subnetes.apiserver.status import Cause

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_BUILT_IN = frozenset((CRDS, *(builtin.served.key for builtin in BUILTINS)))
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
    absent = [f"spec.{key}" for key in ("group", "scope", "versions") if not spec.get(key)]
    absent += [f"spec.names.{key}" for key in ("plural", "kind") if not crd_names.get(key)]
    absent += [f"spec.conversion.{path}" for path in _without_webhook(spec)]
    absent += [
        f"spec.versions[{index}].schema.openAPIV3Schema"
        for index, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    if absent:
        return [causes.required((None, path)) for path in absent]
    name, scope = crd["metadata"].get("name"), spec["scope"]
    stored = [version["name"] for version in versions if version.get("storage")]
    right_name, one_storage = f"{crd_names['plural']}.{spec['group']}", len(stored) == 1
    checks = (
        ("metadata.name", name, name == right_name, 'must be spec.names.plural+"."+spec.group'),
        ("metadata.name", name, name not in _BUILT_IN, "is served without a definition"),
        ("spec.scope", scope, scope in ("Namespaced", "Cluster"), "must be Cluster or Namespaced"),
        ("spec.versions", stored, one_storage, "must have exactly one version marked as storage version"),
    )
    found = [causes.invalid((None, path), value, words) for path, value, fine, words in checks if not fine]
    found += _bad_authorities(spec)
    return found + _lost_versions(crd) + (_changed(spec, old["spec"]) if old else [])


def _client_config(spec: Object) -> Object:
    """Where the conversion webhook is, if there is to be one."""
    conversion = spec.get("conversion") or {}
    webhook = conversion.get("webhook") or {} if conversion.get("strategy") == "Webhook" else {}
    return webhook.get("clientConfig") or {}


def _without_webhook(spec: Object) -> list[str]:
    asked = (spec.get("conversion") or {}).get("strategy") == "Webhook"
    return ["webhook.clientConfig"] if asked and not _client_config(spec) else []


def _bad_authorities(spec: Object) -> list[Cause]:
    """A caBundle that no TLS library could read would fail each conversion."""
    bundle = _client_config(spec).get("caBundle") or ""
    try:
        if bundle:
            x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        path = (None, "spec.conversion.webhook.clientConfig.caBundle")
        return [causes.invalid(path, bundle, "unable to load root certificates")]
    return []


def _lost_versions(crd: Object) -> list[Cause]:
    """A version that objects may be stored in has to stay until they were rewritten."""
    declared = {version["name"] for version in crd["spec"]["versions"]}
    stored = (crd.get("status") or {}).get("storedVersions") or []
    why = "missing from spec.versions, although objects may be stored in it"
    return [
        causes.invalid((None, f"status.storedVersions[{index}]"), version, why)
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
    crd["metadata"]["finalizers"] = [*crd["metadata"].get("finalizers", []), CLEANUP]


class _ClientConfig(msgspec.Struct, rename="camel"):
    url: str | None = None
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    client_config: _ClientConfig | None = None


class _Conversion(msgspec.Struct):
    strategy: str | None = None
    webhook: _Webhook | None = None


class _Names(msgspec.Struct, rename="camel"):
    plural: str = ""
    kind: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _Version(msgspec.Struct, rename="camel"):
    name: str
    schema: dict[str, Object | None] | None = None
    subresources: Object | None = None
    additional_printer_columns: list[Object] | None = None
    selectable_fields: list[dict[str, str]] | None = None


class _Spec(msgspec.Struct):
    group: str = ""
    scope: str = ""
    names: _Names | None = None
    versions: list[_Version] | None = None
    conversion: _Conversion | None = None


class _Status(msgspec.Struct, rename="camel"):
    stored_versions: list[str] | None = None
    conditions: list[Object] | None = None


class _Shape(msgspec.Struct):
    """The types of what is read here."""

    spec: _Spec | None = None
    status: _Status | None = None


RULES = Rules(
    prepare=prepare, generation=True, needs_version=True, status_apart=True, mark=_mark, shape=_Shape
)


def status(crd: Object, now: str) -> Object:
    """What the server says about a CRD: that it serves it, and which versions were ever stored."""
    spec, before = crd["spec"], crd.get("status") or {}
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    stored = before.get("storedVersions") or []
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": text, "lastTransitionTime": now}
        for kind, reason, text in _CONDITIONS
    ]
    return {
        "conditions": before.get("conditions") or conditions,
        "acceptedNames": spec["names"],
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


_CONDITIONS = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


def endpoints(crd: Object, since: int) -> list[Endpoint]:
    """One endpoint a version, served or not, its schema in force since that revision."""
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
            conversion=spec.get("conversion") or {},
            since=since,
            terminating="deletionTimestamp" in crd["metadata"],
        )
        for version in spec["versions"]
    ]


def _served(spec: Object, version: Object, storage: str) -> Served:
    names, scope = spec["names"], spec["scope"]
    declared = version.get("additionalPrinterColumns")
    return Served(
        resource=Resource(
            spec["group"], version["name"], names["kind"], names["plural"], scope == "Namespaced"
        ),
        singular=names["singular"],
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status_subresource="status" in (version.get("subresources") or {}),
        storage_version=storage,
        columns=tuple(map(_column, declared)) if declared else (_AGE,),
        selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        openapi=version["schema"]["openAPIV3Schema"],
    )


def _column(declared: Object) -> Column:
    optional = {key: declared[key] for key in ("description", "format", "priority") if key in declared}
    return Column(declared["name"], declared["type"], declared["jsonPath"], **optional)
