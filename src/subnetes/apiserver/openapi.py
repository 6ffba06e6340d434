"""OpenAPI v3 as far as kubectl reads it: `explain` reads the schemas, `apply` and `create` whether the server
checks unknown fields itself (the fieldValidation parameter of a PATCH).

The HTTP handlers call `index` and `document`. Custom resources show the schema of their CRD; of the core
kinds, which are not validated here, only what every object has is described.
"""

from collections.abc import Iterable
from typing import Any

from subnetes.apiserver.resources import Served

Json = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_STRING: Json = {"type": "string"}
_STRINGS: Json = {"type": "object", "additionalProperties": _STRING}
_TIME: Json = {"type": "string", "format": "date-time"}
_LIST: Json = {"type": "array", "items": {"type": "object"}}
_FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _said(schema: Json, description: str) -> Json:
    return {"description": description} | schema


_ABOUT_META = "What every object has: its name, labels, owners and history."
_OBJECT_META: Json = {
    "type": "object",
    "description": _ABOUT_META,
    "properties": {
        "name": _said(_STRING, "Unique among the objects of its kind in the namespace; never changes."),
        "generateName": _said(_STRING, "A prefix from which the server makes a name if none is given."),
        "namespace": _said(_STRING, "The namespace that the object is in, if its kind has any."),
        "labels": _said(_STRINGS, "Keys and values to select objects by."),
        "annotations": _said(_STRINGS, "Keys and values for tools, not to select by."),
        "uid": _said(_STRING, "Tells this object from any other, also of the same name, for all time."),
        "resourceVersion": _said(_STRING, "Changes with every write; a write with an old one is refused."),
        "generation": _said({"type": "integer"}, "Counts the changes of what is desired."),
        "creationTimestamp": _said(_TIME, "When the object was created."),
        "deletionTimestamp": _said(_TIME, "When its deletion was asked for."),
        "finalizers": _said({"type": "array", "items": _STRING}, "Who must agree before it is gone."),
        "ownerReferences": _said(_LIST, "The objects that this one goes with."),
    },
}
_STANDARD: Json = {
    "apiVersion": _said(_STRING, "The group and version of this form of the object."),
    "kind": _said(_STRING, "What the object is."),
    "metadata": _said({"allOf": [{"$ref": f"#/components/schemas/{_META}"}]}, _ABOUT_META),
}


def index(served: Iterable[Served]) -> Json:
    """/openapi/v3: where the documents are."""
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _documents(served)}}


def document(served: Iterable[Served], path: str) -> Json | None:
    """/openapi/v3/{path}, where path is api/v1 or apis/g/v; None if nothing is served there."""
    members = _documents(served).get(path)
    if not members:
        return None
    paths: Json = {}
    for each in members:
        paths |= _paths(each)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Subnetes' embedded Kubernetes API", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": {_schema_name(e): _schema(e) for e in members} | {_META: _OBJECT_META}},
    }


def _documents(served: Iterable[Served]) -> dict[str, list[Served]]:
    groups: dict[str, list[Served]] = {}
    for each in sorted(served, key=lambda each: each.resource.path()):
        groups.setdefault(each.resource.path().rpartition("/")[0].removeprefix("/"), []).append(each)
    return groups


def _schema_name(served: Served) -> str:
    resource = served.resource
    group = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{group}.{resource.version}.{resource.kind}"


def _kind(served: Served) -> Json:
    resource = served.resource
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema(served: Served) -> Json:
    schema = served.openapi or _FREE
    properties = schema.get("properties", {}) | _STANDARD
    return schema | {"properties": properties, "x-kubernetes-group-version-kind": [_kind(served)]}


def _paths(served: Served) -> Json:
    """The operations by which kubectl recognises a kind."""
    resource = served.resource
    namespace = "{namespace}" if resource.namespaced else None
    checked = {"name": "fieldValidation", "in": "query", "schema": _STRING}
    operation = {"parameters": [checked], "x-kubernetes-group-version-kind": _kind(served)}
    listed, named = resource.path(namespace), resource.path(namespace, "{name}")
    return {resource.path(): {"get": operation}, listed: {"post": operation}, named: {"patch": operation}}
