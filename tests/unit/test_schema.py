"""`Schema` by itself: pruning, defaulting, rules, gaps. The words are compared in tests/kube."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subnetes.apiserver.schema import Schema

Json = dict[str, Any]
CRDS = Path(__file__).parents[2] / "deploy" / "crds"
STRING: Json = {"type": "string"}


def _schema(spec: Json, **root: Any) -> Schema:
    return Schema({"type": "object", "properties": {"spec": spec}} | root)


def _object(spec: Any) -> Json:
    return {
        "apiVersion": "t.io/v1",
        "kind": "Thing",
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": spec,
    }


def _fields(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _ruled(schema: Json, *rules: Json) -> Json:
    return schema | {"x-kubernetes-validations": list(rules)}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=10,
)
NESTED: Json = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "string", "maxLength": 1, "default": "a"},
        "b": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer", "minimum": 0}},
        "c": {"type": "object", "additionalProperties": {"type": "number", "default": 1}},
        "d": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "nullable": True, "properties": {"a": STRING, "b": {"enum": [1, 2]}}},
        },
    },
}


@given(VALUES)
def test_preparing_an_object_twice_is_preparing_it_once(spec: Any) -> None:
    schema, obj = _schema(NESTED), _object(spec)
    schema.prune(obj)
    schema.default(obj)
    once = copy.deepcopy(obj)
    assert schema.prune(obj) == []
    schema.default(obj)
    assert obj == once


@given(VALUES)
def test_any_value_gets_a_verdict(spec: Any) -> None:
    schema = _schema(NESTED)
    fields = {cause.field for cause in schema.validate(_object(spec))}
    assert ("spec" in fields) == (not isinstance(spec, dict))


def test_what_the_schema_does_not_know_is_dropped_and_named() -> None:
    spec = _fields(
        known=STRING,
        items={"type": "array", "items": _fields(a=STRING)},
        free={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"k": _fields(a=STRING)},
        },
        map={"type": "object", "additionalProperties": _fields(a=STRING)},
    )
    obj = _object(
        {
            "known": "x",
            "foo": 1,
            "items": [{"a": "x"}, {"b": {"c": 1}}],
            "free": {"any": {"thing": 1}, "k": {"a": "x", "b": 1}},
            "map": {"m": {"b": 1}},
        }
    )
    obj["extra"] = 1
    assert _schema(spec).prune(obj) == [
        "extra",
        "spec.foo",
        "spec.free.k.b",
        "spec.items[1].b",
        "spec.map.m.b",
    ]
    assert obj["spec"]["free"]["any"] == {"thing": 1}
    assert obj["metadata"] == {"name": "x", "labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"n": 3}),
        ({"n": None, "o": None, "s": None}, {"n": 3, "o": None}),
        ({"o": {}}, {"n": 3, "o": {"deep": {"x": 1}}}),
        ({"l": [{}, None]}, {"n": 3, "l": [{"mode": "auto"}, None]}),
        ({"m": {"a": {}, "b": None}}, {"n": 3, "m": {"a": {"mode": "auto"}}}),
    ],
)
def test_defaults_fill_what_is_absent_and_nulls_that_are_not_allowed_go(spec: Json, expected: Json) -> None:
    mode = _fields(mode={"type": "string", "default": "auto"})
    schema = _schema(
        _fields(
            n={"type": "integer", "default": 3},
            s=STRING,
            o=_fields(deep={"type": "object", "default": {"x": 1}}) | {"nullable": True},
            l={"type": "array", "items": mode},
            m={"type": "object", "additionalProperties": mode},
        )
    )
    obj = _object(spec)
    schema.default(obj)
    assert obj["spec"] == expected


def test_a_default_is_not_shared_between_objects() -> None:
    schema = _schema(_fields(l={"type": "array", "items": STRING, "default": []}))
    first, second = _object({}), _object({})
    schema.default(first)
    schema.default(second)
    first["spec"]["l"].append("x")
    assert second["spec"]["l"] == []


def test_rules_wait_until_the_object_has_the_right_shape() -> None:
    schema = _schema(_ruled(_fields(a={"type": "integer"}), {"rule": "self.a > 0"}))
    reasons = [(cause.reason, cause.field) for cause in schema.validate(_object({"a": "x"}))]
    assert reasons == [("FieldValueTypeInvalid", "spec.a"), ("FieldValueInvalid", "<nil>")]


def test_a_transition_rule_speaks_only_of_changes() -> None:
    schema = _schema(_fields(a=_ruled(STRING, {"rule": "self == oldSelf", "message": "fixed"})))
    assert schema.validate(_object({"a": "x"})) == []
    assert schema.validate(_object({"a": "x"}), _object({})) == []
    (cause,) = schema.validate(_object({"a": "y"}), _object({"a": "x"}))
    assert (cause.field, cause.message) == ("spec.a", 'Invalid value: "y": fixed')


def test_exactly_one_of_two_nullable_fields() -> None:
    rule = {"rule": "has(self.vlan) != has(self.vxlan)", "message": "exactly one"}
    conf = _fields(vid={"type": "integer"}) | {"nullable": True}
    schema = _schema(_ruled(_fields(vlan=conf, vxlan=conf), rule))
    assert schema.validate(_object({"vlan": {"vid": 1}, "vxlan": None})) == []
    assert [cause.message for cause in schema.validate(_object({"vlan": None, "vxlan": None}))] == [
        "Invalid value: exactly one"
    ]
    assert len(schema.validate(_object({"vlan": {}, "vxlan": {}}))) == 1


@pytest.mark.parametrize(
    "rule",
    [
        "self.frobnicate()",
        "self.?a.orValue(1) > 0",
        "self.a ==",
        "quantity(self.a).isInteger()",
        "self.l.isSorted()",
    ],
)
def test_a_rule_that_cannot_be_run_is_reported_and_not_enforced(rule: str) -> None:
    schema = _schema(_ruled(_fields(a={"type": "integer"}), {"rule": rule}))
    (reported,) = schema.unenforced
    assert reported.startswith(f"rule: {rule} (")
    assert schema.validate(_object({"a": 1})) == []


def test_a_transition_rule_without_a_sure_old_value_is_reported_and_not_enforced() -> None:
    below_a_list = {"type": "array", "items": _ruled(STRING, {"rule": "self == oldSelf"})}
    optional = _ruled(STRING, {"rule": "self == oldSelf.value()", "optionalOldSelf": True})
    schema = _schema(_fields(l=below_a_list, o=optional))
    assert len(schema.unenforced) == 2
    assert schema.validate(_object({"l": ["b"], "o": "b"}), _object({"l": ["a"], "o": "a"})) == []


@pytest.mark.parametrize(
    "keyword",
    [
        {"anyOf": [{"required": ["a"]}]},
        {"oneOf": [{"required": ["a"]}]},
        {"allOf": [{"required": ["a"]}]},
        {"not": {"required": ["a"]}},
        {"minProperties": 1},
        {"properties": {"n": {"type": "integer", "multipleOf": 2}}},
        {"properties": {"l": {"type": "array", "items": STRING, "uniqueItems": True}}},
        {"properties": {"l": {"type": "array", "items": STRING | {"default": "x"}}}},
        {"properties": {"s": {"type": "string", "format": "uuid"}}},
        {"properties": {"s": {"type": "string", "pattern": r"^\p{Greek}+$"}}},
        {"properties": {"s": {"type": "string", "pattern": "^[[:alpha:]]+$"}}},
        {"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    ],
    ids=str,
)
def test_a_keyword_that_is_left_out_is_reported(keyword: Json) -> None:
    schema = _schema({"type": "object"} | keyword)
    assert len(schema.unenforced) == 1
    assert schema.validate(_object({"s": "x", "n": 1, "l": ["a", "a"]})) == []


@pytest.mark.parametrize(
    ("rule", "spec", "holds"),
    [
        ("self.tags.all(t, t.lowerAscii() == t)", {"tags": ["a"]}, True),
        ("self.tags.join(',').split(',').size() == 2", {"tags": ["a", "b"]}, True),
        ("self.tags.all(t, isIP(t) || isCIDR(t))", {"tags": ["10.0.0.1", "fd00::/8"]}, True),
        ("self.tags.all(t, isIP(t) || isCIDR(t))", {"tags": ["10.0.0.1", "10.0.0.0/255.0.0.0"]}, False),
        ("self.size() == 1 && self.tags.size() == 1", {"tags": ["a"]}, True),
        ("size(self) == 1", {"tags": [], "n": 1}, False),
        ("myself.tags", {"tags": []}, True),
    ],
)
def test_a_rule_sees_what_it_speaks_of(rule: str, spec: Json, holds: bool) -> None:
    lists = _fields(tags={"type": "array", "items": STRING}, n={"type": "integer"})
    schema = _schema(_ruled(lists, {"rule": rule}))
    assert bool(schema.unenforced) == ("myself" in rule)
    assert (schema.validate(_object(spec)) == []) is holds


def test_a_rule_that_fails_to_run_is_a_failed_rule() -> None:
    schema = _schema(_ruled(_fields(a={"type": "integer"}), {"rule": "self.a > 0", "message": "positive"}))
    (cause,) = schema.validate(_object({}))
    assert cause.field == "spec"
    assert cause.message.endswith("evaluating rule: positive")


@given(st.lists(st.sampled_from(["a", "b", 1, True, 1.0, None]), max_size=5))
def test_a_set_has_no_item_twice(items: list[Any]) -> None:
    schema = _schema(_fields(l={"type": "array", "x-kubernetes-list-type": "set", "items": {}}))
    found = [
        cause for cause in schema.validate(_object({"l": items})) if cause.reason == "FieldValueDuplicate"
    ]
    texts = [json.dumps(item) for item in items]
    assert len(found) == len({text for text in texts if texts.count(text) > 1})


def test_a_rule_at_the_root_sees_the_name() -> None:
    rule = {"rule": "size(self.metadata.name) <= 3", "message": "too long a name"}
    schema = _schema(_fields(), **{"x-kubernetes-validations": [rule]})
    assert schema.validate(_object({})) == []
    (cause,) = schema.validate(_object({}) | {"metadata": {"name": "long"}})
    assert (cause.field, cause.message) == ("<nil>", "Invalid value: too long a name")


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_everything_in_our_own_kinds_is_enforced(path: Path) -> None:
    versions = yaml.safe_load(path.read_text())["spec"]["versions"]
    schemas = [Schema(version["schema"]["openAPIV3Schema"]) for version in versions]
    assert [schema.unenforced for schema in schemas] == [[] for _ in versions]
