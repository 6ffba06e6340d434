"""A sample custom resource with every feature of CRDs that our own kinds use, for the conformance suite."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from tests.harness.rest import Rest, eventually

GROUP = "conformance.subnetes.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "default": 3},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
        "label": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "enabled": {"type": "boolean"},
        "address": {"type": "string", "format": "ipv4"},
        "since": {"type": "string", "format": "date-time"},
        "maybe": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "counts": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0},
            "x-kubernetes-map-type": "atomic",
        },
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "integer", "default": 1},
                },
            },
        },
        "nested": {
            "type": "object",
            "properties": {"mode": {"type": "string", "default": "auto"}, "level": {"type": "integer"}},
        },
        "left": {"type": "string"},
        "right": {"type": "string"},
        "frozen": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "frozen cannot be changed"}],
        },
        "nodeName": {"type": "string"},
    },
    "x-kubernetes-validations": [
        {"rule": "!(has(self.left) && has(self.right))", "message": "left and right exclude each other"},
        {
            "rule": "!has(self.tags) || self.tags.size() <= self.size",
            "message": "no more tags than the size",
            "fieldPath": ".tags",
            "reason": "FieldValueForbidden",
        },
    ],
}
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "state": {"type": "string", "enum": ["On", "Off"]},
        "count": {"type": "integer"},
        "conditions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}
COLUMNS: list[dict[str, Any]] = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large it is"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
    {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.enabled"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]", "priority": 1},
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]", "priority": 1},
    {"name": "Since", "type": "date", "jsonPath": ".spec.since", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def version(name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One version of a CRD with a spec, a status and its subresource."""
    properties = {"spec": copy.deepcopy(spec or SPEC), "status": copy.deepcopy(STATUS)}
    schema = {"type": "object", "description": "A widget.", "properties": properties}
    body = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return body | more


def crd(
    kind: str, versions: list[dict[str, Any]], *, group: str = GROUP, scope: str = "Namespaced", **spec: Any
) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": versions} | spec,
    }


def widget_crd() -> dict[str, Any]:
    selectable = [{"jsonPath": ".spec.nodeName"}, {"jsonPath": ".spec.color"}]
    body = crd("Widget", [version("v1", additionalPrinterColumns=COLUMNS, selectableFields=selectable)])
    body["spec"]["names"] |= {"shortNames": ["wg"], "categories": ["samples"]}
    return body


def widget(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    named = {"name": name} | metadata if name else metadata
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": named, "spec": spec or {}}


def collection(namespace: str, plural: str = "widgets", version: str = "v1", group: str = GROUP) -> str:
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"


def install(rest: Rest, body: dict[str, Any]) -> None:
    """Create the CRD unless it is there, and wait until every served version answers."""
    name, spec = body["metadata"]["name"], body["spec"]
    answer = rest.post(CRDS, body)
    assert answer.code in (201, 409), answer.body
    eventually(lambda: conditions(rest, name).get("Established"), lambda status: status == "True")
    for each in spec["versions"]:
        if each["served"]:
            path = f"/apis/{spec['group']}/{each['name']}/{spec['names']['plural']}"
            eventually(partial(rest.get, path), lambda answer: answer.code == 200)


def uninstall(rest: Rest, name: str) -> None:
    rest.delete(f"{CRDS}/{name}")
    eventually(lambda: rest.get(f"{CRDS}/{name}").code, lambda code: code == 404)


def conditions(rest: Rest, name: str) -> dict[str, str]:
    """The CRD's conditions: type → status."""
    found = rest.get(f"{CRDS}/{name}").ok().get("status", {}).get("conditions") or []
    return {each["type"]: each["status"] for each in found}
