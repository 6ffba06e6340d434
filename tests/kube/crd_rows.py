"""What a row of the table of limits is, which objects it is tried on, and which rows there must be.

`crd_limits` is the table. A path names a place in the object: `[]` is the first item of a list, `{}` some key
of a map.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from subnetes.api.crd import KINDS, custom_resource_definition
from subnetes.api.model import to_builtins

Json = dict[str, Any]


class Missing:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "missing"


MISSING = Missing()

# The reason in the Status for a value that the limit refuses.
REASONS = {
    "minimum": "FieldValueInvalid",
    "maximum": "FieldValueInvalid",
    "minLength": "FieldValueInvalid",
    "maxLength": "FieldValueTooLong",
    "minItems": "FieldValueInvalid",
    "maxItems": "FieldValueTooMany",
    "pattern": "FieldValueInvalid",
    "format": "FieldValueTypeInvalid",
    "enum": "FieldValueNotSupported",
    "unique": "FieldValueDuplicate",
    "required": "FieldValueRequired",
}


@dataclass(frozen=True)
class Row:
    kind: str
    path: str
    limit: str  # a schema keyword, or the message of a rule
    good: Any
    bad: Any
    also: Mapping[str, Any] = field(default_factory=dict)  # what else must be set, by path
    blamed: str = ""  # the field that the Status names, if it is not the path
    on_update: bool = False  # the rule compares with the object as it was

    @property
    def id(self) -> str:
        return f"{self.kind} {self.path}: {self.limit}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.path, self.limit

    @property
    def is_rule(self) -> bool:
        return self.limit not in REASONS

    def object(self, value: Any) -> Json:
        body = copy.deepcopy(SAMPLES[self.kind])
        for path, other in {**self.also, self.path: value}.items():
            put(body, path, other)
        return body


def put(body: Json, path: str, value: Any) -> None:
    """Set (or remove) what is at the path, making what leads there."""
    *way, last = steps(path)
    place: Any = body
    for step, following in zip(way, [*way, last][1:], strict=True):
        place = _enter(place, step, [] if isinstance(following, int) else {})
    if isinstance(place, list):
        place[:] = [copy.deepcopy(value)]
    elif value is MISSING:
        place.pop(last, None)
    else:
        place[last] = copy.deepcopy(value)


def _enter(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(place, list):
        if not place:
            place.append(empty)
        return place[0]
    return place.setdefault(step, empty)


def at(body: Any, path: str) -> Any:
    for step in steps(path):
        body = body[step]
    return body


def steps(path: str) -> list[str | int]:
    words = re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path)
    special: dict[str, str | int] = {"[]": 0, "{}": "some"}
    return [special.get(word, word) for word in words]


V1ALPHA = "v1alpha"  # stands for NodeNetworkConfig v1alpha among the kinds

SAMPLES: dict[str, Json] = {
    "NodeNetworkConfig": {"spec": {}},
    V1ALPHA: {"spec": {}},
    "ClusterSubnet": {"spec": {"addressSpace": ["10.1.0.0/16"], "networkID": "blue"}},
    "NetworkClass": {"spec": {"engine": "vlan", "cniName": "bridge"}},
    "ClusterNetwork": {"spec": {"NetworkClassName": "vlan", "DefaultOptions": {}}},
    "NodeNetwork": {"spec": {"nodeName": "node-1", "clusterNetworkName": "fabric", "options": {}}},
    "Network": {"spec": {"clusterNetworkName": "fabric", "conf": {"vlanConf": {"vid": 100}}}},
    "NetworkAttachmentDefinition": {"spec": {"config": "{}"}},
}


def definitions() -> dict[str, Json]:
    """The CRD of each kind of the table. v1alpha has one of its own, in another group, to be served alone."""
    found = {
        versions[0].resource.kind: to_builtins(custom_resource_definition(versions)) for versions in KINDS
    }
    alpha = to_builtins(custom_resource_definition(KINDS[0][1:]))
    group = f"v1alpha.{alpha['spec']['group']}"
    alpha["spec"]["group"] = group
    alpha["metadata"]["name"] = f"{alpha['spec']['names']['plural']}.{group}"
    return found | {V1ALPHA: alpha}


def schema_of(definition: Json) -> Json:
    schema: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def limits(schema: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Every limit in a schema: the path that it is at, and its keyword or its rule's message."""
    stated = schema.keys() & REASONS.keys() - {"required", "format"}
    yield from ((path, keyword) for keyword in stated)
    if "format" in schema and schema["type"] == "string":
        yield path, "format"
    if schema.get("x-kubernetes-list-type") in ("set", "map"):
        yield path, "unique"
    yield from ((path, rule["message"]) for rule in schema.get("x-kubernetes-validations", []))
    yield from ((f"{path}.{name}".lstrip("."), "required") for name in schema.get("required", []))
    for name, each in schema.get("properties", {}).items():
        yield from limits(each, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from limits(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from limits(schema["additionalProperties"], f"{path}{{}}")
