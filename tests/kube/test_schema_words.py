"""`Schema` beside the real kube-apiserver: the same verdict on the same object, in the same words.

The objects are sent as dry runs, so a case costs one request and leaves nothing behind. The causes come in no
order (the real server walks maps), so they are compared as sets.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from subnetes.apiserver.schema import Schema
from subnetes.apiserver.status import Cause
from tests.harness.control_plane import ControlPlane
from tests.harness.rest import Answer, Rest
from tests.harness.widgets import GROUP, collection, crd, install, uninstall

Json = dict[str, Any]


def _string(**limits: Any) -> Json:
    return {"type": "string"} | limits


def _formats() -> Json:
    named = {name.replace("-", ""): _string(format=name) for name in ("ipv4", "ipv6", "cidr", "date-time")}
    return {"type": "object", "properties": named}


def _rules() -> Json:
    return {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer"},
            "ratio": {"type": "number"},
            "once": _string(
                **{"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": " fixed "}]}
            ),
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 5},
            "maybe": {"type": "object", "nullable": True, "properties": {"x": {"type": "integer"}}},
            "other": {"type": "object", "nullable": True, "properties": {"x": {"type": "integer"}}},
            "address": _string(
                maxLength=50, **{"x-kubernetes-validations": [{"rule": "isIP(self)", "message": "not an IP"}]}
            ),
            "range": _string(maxLength=50, **{"x-kubernetes-validations": [{"rule": "isCIDR(self)"}]}),
            "limits": {
                "type": "object",
                "maxProperties": 5,
                "additionalProperties": {
                    "type": "integer",
                    "x-kubernetes-validations": [{"rule": "self < 10", "reason": "FieldValueForbidden"}],
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.a) || !has(self.b) || self.a < self.b", "message": "a must be below b"},
            {
                "rule": "!has(self.map) || !('dup' in self.map)",
                "reason": "FieldValueRequired",
                "message": "needed",
                "fieldPath": ".map",
            },
            {
                "rule": "(has(self.maybe) && self.maybe != null) != (has(self.other) && self.other != null)"
                " || !has(self.maybe)",
                "message": "one of maybe and other",
            },
            {"rule": "!has(self.a) || self.a < 100"},
            {"rule": "!has(self.ratio) || self.ratio * 2.0 < 3.0", "fieldPath": ".ratio"},
        ],
    }


SPEC: Json = {
    "type": "object",
    "required": ["must"],
    "properties": {
        "must": _string(default="given"),
        "vid": {"type": "integer", "minimum": 1, "maximum": 4094},
        "small": {"type": "integer", "format": "int32"},
        "ratio": {"type": "number", "minimum": 0.5, "maximum": 2.5, "exclusiveMaximum": True},
        "above": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "flag": {"type": "boolean"},
        "text": _string(minLength=2, maxLength=5, pattern="^[a-z<&]+$"),
        "byte": _string(maxLength=1),
        "digits": _string(pattern=r"^\d+\.?$"),
        "color": _string(enum=["red", "green"]),
        "level": {"type": "integer", "enum": [1, 2]},
        "either": {"x-kubernetes-int-or-string": True},
        "maybe": _string(nullable=True),
        "maybeColor": _string(nullable=True, enum=["red"]),
        "tags": {"type": "array", "minItems": 1, "maxItems": 3, "items": _string(maxLength=4)},
        "one": {"type": "array", "maxItems": 1, "items": _string()},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _string()},
        "pairs": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": _string(),
                    "port": {"type": "integer", "default": 80},
                    "x": _string(maxLength=2),
                },
            },
        },
        "counts": {
            "type": "object",
            "maxProperties": 2,
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"k": _string()},
        },
        "nested": {
            "type": "object",
            "required": ["deep"],
            "properties": {
                "deep": {"type": "object", "required": ["x"], "properties": {"x": _string()}},
                "mode": _string(default="auto"),
            },
        },
        "formats": _formats(),
        "rules": _rules(),
    },
}
STATUS: Json = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0},
        "conditions": {
            "type": "array",
            "items": {"type": "object", "required": ["type"], "properties": {"type": _string()}},
        },
    },
}
OPENAPI: Json = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": STATUS}}


def _valid_and_not(name: str, *values: Any) -> list[Json]:
    return [{name: value} for value in values]


FORMATS: dict[str, list[str]] = {
    "ipv4": ["10.0.0.1", "10.0.0.256", "::1", "::ffff:1.2.3.4", "x", ""],
    "ipv6": ["::1", "fe80::1%eth0", "1.2.3.4", "::ffff:1.2.3.4", "fd00::zz"],
    "cidr": [
        "10.0.0.0/8",
        "10.0.0.1/8",
        "10.0.0.0",
        "fd00::/64",
        "10.0.0.0/33",
        "10.0.0.0/255.0.0.0",
        "fd00::/129",
    ],
    "datetime": [
        "2024-01-01T00:00:00Z",
        "2024-01-01t00:00:00.5+01:00",
        "2024-13-01T00:00:00Z",
        "2024-01-01",
        "2024-01-01T25:00:00Z",
    ],
}

CREATED: list[Json] = [
    {},
    *_valid_and_not("vid", 0, 1, 4094, 4095, "1", 1.5, 2.0, True, None, [], {}),
    *_valid_and_not("small", 2147483647, 2147483648, -2147483649, True, "x", 1.5),
    *_valid_and_not("ratio", 0.5, 0.25, 2.5, 1, 3, "x"),
    *_valid_and_not("above", 0, 0.001),
    *_valid_and_not("flag", True, "true", 1),
    *_valid_and_not("text", "a", "ab", "abcdef", "AB", "a<&", 5, 'q"', "ä"),
    *_valid_and_not("byte", "ab", "é"),
    *_valid_and_not("digits", "12", "12\n", "٣", "12.", "ab"),
    *_valid_and_not("color", "red", "pink", 1, None),
    *_valid_and_not("level", 1, 3, "1"),
    *_valid_and_not("either", 1, "a", 1.5, True, {}),
    *_valid_and_not("maybe", None, "x", 1),
    *_valid_and_not("maybeColor", None, "red", "blue"),
    *_valid_and_not("tags", [], ["a"], ["a", "b", "c", "d"], ["toolong"], [1], [None], "x", {}),
    *_valid_and_not("one", ["a", "b"]),
    *_valid_and_not("set", ["a", "b"], ["a", "a"], ["a", "b", "a", "b", "a"]),
    *_valid_and_not(
        "pairs", [{"name": "a"}, {"name": "a", "port": 80}], [{"name": "a"}, {"name": "a", "port": 81}]
    ),
    *_valid_and_not("pairs", [{"port": 1}], [{"name": "a", "x": "long"}]),
    *_valid_and_not("counts", {}, {"a": 1}, {"a": -1}, {"a": "x"}, {"a": 1, "b": 2, "c": 3}, {"a": None}),
    *_valid_and_not("free", {"anything": [1]}, {"k": 1}, []),
    *_valid_and_not("nested", {}, {"deep": {}}, {"deep": {"x": 1}}, {"deep": {"x": "y"}}, {"deep": None}),
    *_valid_and_not("must", None, "", 1),
    *({"formats": {name: value}} for name, values in FORMATS.items() for value in values),
    {"formats": {"ipv4": 5, "ipv6": True, "cidr": [], "datetime": {}}},
    {"vid": 0, "text": "A", "color": "pink", "tags": []},
    *_valid_and_not("rules", {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 100}, {"a": 200, "b": 1}, {"a": "x"}),
    *_valid_and_not("rules", {"ratio": 1}, {"ratio": 2}, {"ratio": 1.25}),
    *_valid_and_not("rules", {"map": {"a": 1}}, {"map": {"dup": 1}}),
    *_valid_and_not(
        "rules",
        {"maybe": None, "other": None},
        {"maybe": {"x": 1}, "other": None},
        {"maybe": {}, "other": {}},
    ),
    *_valid_and_not(
        "rules",
        {"address": "10.0.0.1"},
        {"address": "10.0.0"},
        {"address": "::1"},
        {"address": "010.0.0.1"},
        {"address": "::1%eth0"},
    ),
    *_valid_and_not(
        "rules",
        {"range": "10.0.0.0/8"},
        {"range": "10.0.0.0"},
        {"range": "10.0.0.1/8"},
        {"range": "fd00::/64"},
    ),
    *_valid_and_not("rules", {"limits": {"a": 9}}, {"limits": {"a": 10, "b": 11}}, {"once": "x"}),
    {
        "unknown": 1,
        "nested": {"deep": {"x": "y", "no": {}}},
        "pairs": [{"name": "a", "no": 1}],
        "free": {"k": "v"},
    },
]

OLD: Json = {
    "vid": 5,
    "pairs": [{"name": "a", "x": "1"}],
    "rules": {
        "a": 1,
        "b": 2,
        "once": "x",
        "limits": {"a": 5},
    },
}

CHANGED: list[Json] = [
    {},
    {"rules": {"once": "y"}},
    {"rules": {"once": None}},
    {"rules": {"a": 9}},
    {"vid": 0},
    {"vid": 0, "rules": {"once": "y"}},
    {"vid": "x", "rules": {"once": "y"}},
]


class Bench:
    """The CRD on the real server, and the same schema here."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.path = collection("default", "schemawords")
        self.schema = Schema(OPENAPI)

    def object(self, spec: Json, name: str = "x") -> Json:
        return {"apiVersion": f"{GROUP}/v1", "kind": "SchemaWord", "metadata": {"name": name}, "spec": spec}

    def ours(self, new: Json, old: Json | None = None) -> tuple[list[str], list[Cause], Json]:
        obj = copy.deepcopy(new)
        dropped = self.schema.prune(obj)
        self.schema.default(obj)
        return dropped, self.schema.validate(obj, old), obj


def _body() -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": OPENAPI},
        "subresources": {"status": {}},
    }
    return crd("SchemaWord", [version])


@pytest.fixture(scope="module")
def bench(real: ControlPlane) -> Iterator[Bench]:
    rest = Rest(real.url, real.ca_file, real.token)
    install(rest, _body())
    yield Bench(rest)
    uninstall(rest, f"schemawords.{GROUP}")


def _theirs(answer: Answer) -> set[tuple[str, str, str]]:
    causes = answer.json["details"]["causes"] if answer.code == 422 else []
    assert answer.code < 300 or causes, answer.body
    return {(cause["reason"], cause["field"], cause["message"]) for cause in causes}


def _words(causes: list[Cause]) -> set[tuple[str, str, str]]:
    return {(cause.reason, cause.field, cause.message) for cause in causes}


def _named(cases: list[Json]) -> list[Any]:
    return [pytest.param(case, id=f"{index}-{json.dumps(case)[:60]}") for index, case in enumerate(cases)]


def test_everything_in_the_sample_is_enforced() -> None:
    assert Schema(OPENAPI).unenforced == []


@pytest.mark.parametrize("spec", _named(CREATED))
def test_a_new_object_is_judged_defaulted_and_pruned_as_by_kubernetes(bench: Bench, spec: Json) -> None:
    answer = bench.rest.post(bench.path, bench.object(spec), dryRun="All")
    _, causes, obj = bench.ours(bench.object(spec))
    assert _words(causes) == _theirs(answer)
    if answer.code == 201:
        assert obj["spec"] == answer.json["spec"]


@pytest.mark.parametrize("spec", _named([spec for spec in CREATED if "unknown" in spec]))
def test_strict_validation_names_the_same_unknown_fields(bench: Bench, spec: Json) -> None:
    answer = bench.rest.post(bench.path, bench.object(spec), dryRun="All", fieldValidation="Strict")
    dropped, _, _ = bench.ours(bench.object(spec))
    listed = ", ".join(f'unknown field "{path}"' for path in dropped)
    assert answer.json["message"].endswith(f"strict decoding error: {listed}")


@pytest.mark.parametrize("change", _named(CHANGED))
def test_a_change_is_judged_as_by_kubernetes(bench: Bench, change: Json) -> None:
    old = bench.rest.post(bench.path, bench.object(OLD, name="changed"))
    assert old.code in (201, 409)
    stored = bench.rest.get(f"{bench.path}/changed").ok()
    changed = copy.deepcopy(stored)
    changed["spec"] |= {key: value for key, value in change.items() if key != "rules"}
    changed["spec"]["rules"] |= change.get("rules", {})
    answer = bench.rest.put(f"{bench.path}/changed", changed, dryRun="All")
    _, causes, _ = bench.ours(changed, stored)
    assert _words(causes) == _theirs(answer)


@pytest.mark.parametrize(
    "status",
    _named(
        [{"count": 1}, {"count": -1}, {"count": "x"}, {"conditions": [{}]}, {"conditions": [{"type": 1}]}]
    ),
)
def test_a_status_write_is_judged_as_by_kubernetes(bench: Bench, status: Json) -> None:
    """The real server writes the paths inside of its messages from status on."""
    bench.rest.post(bench.path, bench.object({}, name="statused"))
    stored = bench.rest.get(f"{bench.path}/statused").ok()
    changed = stored | {"status": status}
    answer = bench.rest.put(f"{bench.path}/statused/status", changed, dryRun="All")
    ours = {(reason, field) for reason, field, _ in _words(bench.schema.validate(changed, stored))}
    assert ours == {(reason, field) for reason, field, _ in _theirs(answer)}
