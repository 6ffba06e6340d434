"""Schemas, defaults, pruning, field validation and CEL rules of custom resources, on both servers alike."""

from typing import Any

import pytest

from tests.harness.rest import MERGE, Rest
from tests.harness.twins import Twins
from tests.harness.widgets import widget

NOT_CHECKED = "<nil>"  # the field of the cause that says that CEL rules were not run

ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {"size": 3, "color": "red"}),
    "null-takes-the-default": ({"size": None}, {"size": 3, "color": "red"}),
    "limits": ({"size": 10, "ratio": 0.001}, {"size": 10, "ratio": 0.001, "color": "red"}),
    "nullable-null": ({"maybe": None}, {"size": 3, "color": "red", "maybe": None}),
    "nested-default": ({"nested": {}}, {"size": 3, "color": "red", "nested": {"mode": "auto"}}),
    "item-default": (
        {"parts": [{"name": "p"}]},
        {"size": 3, "color": "red", "parts": [{"name": "p", "weight": 1}]},
    ),
    "pruned": (
        {"nope": 1, "nested": {"nope": 1}, "parts": [{"name": "p", "nope": [1]}]},
        {"size": 3, "color": "red", "nested": {"mode": "auto"}, "parts": [{"name": "p", "weight": 1}]},
    ),
    "free-form": ({"free": {"a": [{"b": None}]}}, {"size": 3, "color": "red", "free": {"a": [{"b": None}]}}),
    "int-or-string": ({"port": "http"}, {"size": 3, "color": "red", "port": "http"}),
    "integral-float": ({"size": 4.0}, {"size": 4, "color": "red"}),
    "map": ({"counts": {"a": 1}}, {"size": 3, "color": "red", "counts": {"a": 1}}),
    "formats": (
        {"address": "10.0.0.1", "since": "2024-01-01T00:00:00Z"},
        {"size": 3, "color": "red", "address": "10.0.0.1", "since": "2024-01-01T00:00:00Z"},
    ),
}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "below-minimum": ({"size": 0}, "spec.size", "FieldValueInvalid"),
    "above-maximum": ({"size": 11}, "spec.size", "FieldValueInvalid"),
    "exclusive-minimum": ({"ratio": 0}, "spec.ratio", "FieldValueInvalid"),
    "not-an-integer": ({"size": 1.5}, "spec.size", "FieldValueTypeInvalid"),
    "string-for-integer": ({"size": "3"}, "spec.size", "FieldValueTypeInvalid"),
    "integer-for-string": ({"label": 3}, "spec.label", "FieldValueTypeInvalid"),
    "boolean-for-string": ({"label": True}, "spec.label", "FieldValueTypeInvalid"),
    "list-for-object": ({"nested": []}, "spec.nested", "FieldValueTypeInvalid"),
    "object-for-list": ({"tags": {}}, "spec.tags", "FieldValueTypeInvalid"),
    "not-int-or-string": ({"port": True}, "spec.port", "FieldValueTypeInvalid"),
    "enum": ({"color": "pink"}, "spec.color", "FieldValueNotSupported"),
    "too-short": ({"label": "a"}, "spec.label", "FieldValueInvalid"),
    "too-long": ({"label": "abcdef"}, "spec.label", "FieldValueTooLong"),
    "pattern": ({"label": "ABC"}, "spec.label", "FieldValueInvalid"),
    "format-ipv4": ({"address": "10.0.0.256"}, "spec.address", "FieldValueTypeInvalid"),
    "format-date-time": ({"since": "yesterday"}, "spec.since", "FieldValueTypeInvalid"),
    "too-many-items": ({"size": 9, "tags": ["a", "b", "c", "d"]}, "spec.tags", "FieldValueTooMany"),
    "item-type": ({"tags": [1]}, "spec.tags[0]", "FieldValueTypeInvalid"),
    "map-value": ({"counts": {"a": -1}}, "spec.counts.a", "FieldValueInvalid"),
    "required": ({"parts": [{"weight": 2}]}, "spec.parts[0].name", "FieldValueRequired"),
    "duplicate-map-key": ({"parts": [{"name": "p"}, {"name": "p"}]}, "spec.parts[1]", "FieldValueDuplicate"),
    "rule-across-fields": ({"left": "l", "right": "r"}, "spec", "FieldValueInvalid"),
    "rule-with-field-and-reason": ({"size": 1, "tags": ["a", "b"]}, "spec.tags", "FieldValueForbidden"),
}


@pytest.mark.parametrize(("spec", "stored"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_valid_object_is_stored_defaulted_and_pruned(
    rest: Rest, widgets: str, spec: dict[str, Any], stored: dict[str, Any]
) -> None:
    assert rest.post(widgets, widget("a", spec)).ok()["spec"] == stored
    assert rest.get(f"{widgets}/a").ok()["spec"] == stored


@pytest.mark.parametrize(("spec", "field", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_object_is_refused_with_its_field_in_the_same_words(
    twins: Twins, spec: dict[str, Any], field: str, reason: str
) -> None:
    status = twins.ask("POST", twins.widgets, widget("a", spec)).failed(422, "Invalid")
    causes = [cause for cause in status["details"]["causes"] if cause["field"] != NOT_CHECKED]
    assert [(cause["field"], cause["reason"]) for cause in causes] == [(field, reason)]
    twins.ask("GET", f"{twins.widgets}/a").failed(404, "NotFound")


def test_every_wrong_field_is_named_at_once(twins: Twins) -> None:
    spec = {"size": 0, "color": "pink", "label": "A", "parts": [{}], "tags": [1]}
    status = twins.ask("POST", twins.widgets, widget("a", spec)).failed(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert {"spec.size", "spec.color", "spec.label", "spec.parts[0].name", "spec.tags[0]"} <= fields


def test_an_update_is_validated_like_a_create(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    for spec in ({"size": 0}, {"left": "l", "right": "r"}):
        twins.ask("PATCH", f"{twins.widgets}/a", {"spec": spec}, content_type=MERGE).failed(422, "Invalid")


def test_a_transition_rule_sees_the_old_value(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    twins.do("POST", twins.widgets, widget("a", {"frozen": "ice"}))
    twins.do("PATCH", path, {"spec": {"size": 4}}, content_type=MERGE)
    status = twins.ask("PATCH", path, {"spec": {"frozen": "water"}}, content_type=MERGE).failed(
        422, "Invalid"
    )
    assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.frozen"]
    assert "frozen cannot be changed" in status["message"]


def test_a_transition_rule_allows_adding_and_removing(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a")).ok()
    assert rest.patch(f"{widgets}/a", {"spec": {"frozen": "ice"}}).ok()["spec"]["frozen"] == "ice"
    assert "frozen" not in rest.patch(f"{widgets}/a", {"spec": {"frozen": None}}).ok()["spec"]


def test_a_put_that_leaves_a_default_out_gets_it_again(rest: Rest, widgets: str) -> None:
    found = rest.post(widgets, widget("a", {"size": 5})).ok()
    assert rest.put(f"{widgets}/a", found | {"spec": {}}).ok()["spec"] == {"size": 3, "color": "red"}


@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_unknown_fields_are_dropped_or_refused(twins: Twins, method: str, validation: str) -> None:
    path = twins.widgets
    twins.do("POST", path, widget("a"))
    spec = {"nope": 1, "nested": {"neither": 2}, "parts": [{"name": "p", "nor": 3}]}

    def send(rest: Rest) -> Any:
        if method == "POST":
            return rest.post(path, widget("b", spec), fieldValidation=validation)
        found = rest.get(f"{path}/a").ok()
        return rest.put(f"{path}/a", found | {"spec": spec}, fieldValidation=validation)

    answer = twins.both(send)
    if validation == "Strict":
        message = answer.failed(400, "BadRequest")["message"]
        assert all(
            f'"{field}"' in message for field in ("spec.nope", "spec.nested.neither", "spec.parts[0].nor")
        )
        return
    assert "nope" not in answer.ok()["spec"]


def test_an_unknown_top_level_or_metadata_field(twins: Twins) -> None:
    body = widget("a", nonsense=1) | {"extra": {}}
    message = twins.ask("POST", twins.widgets, body, fieldValidation="Strict").failed(400, "BadRequest")[
        "message"
    ]
    assert all(f'"{field}"' in message for field in ("extra", "metadata.nonsense"))
    answer = twins.ask("POST", twins.widgets, body, fieldValidation="Ignore")
    assert "extra" not in answer.ok()
    assert "nonsense" not in answer.ok()["metadata"]


def test_an_unknown_field_validation_is_refused(twins: Twins) -> None:
    twins.alike(lambda rest: rest.post(twins.widgets, widget("a"), fieldValidation="Lax")).failed(
        422, "Invalid"
    )
