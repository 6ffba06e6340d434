"""The rules of our CRDs in the CEL library that the embedded API server uses, held against the same table."""

import copy
from typing import Any

import cel
import pytest

from tests.kube.crd_limits import ROWS
from tests.kube.crd_rows import SAMPLES, Json, Row, at, definitions, schema_of, steps

RULES = [row for row in ROWS if row.is_rule]
SCHEMAS = {kind: schema_of(definition) for kind, definition in definitions().items()}


def _schema_at(row: Row) -> Json:
    schema = SCHEMAS[row.kind]
    for step in steps(row.path):
        schema = schema["items"] if step == 0 else schema["properties"][step]
    return schema


def _filled(schema: Json, value: Any) -> Any:
    """The value as rules see it: with the defaults of what it leaves out."""
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    return {name: _filled(properties.get(name, {}), each) for name, each in (defaults | value).items()}


def _holds(row: Row, value: Any) -> bool:
    schema = _schema_at(row)
    (rule,) = (each for each in schema["x-kubernetes-validations"] if each["message"] == row.limit)
    sample = copy.deepcopy(SAMPLES[row.kind])
    seen = at(row.object(value), row.path) if row.path else {**sample, "metadata": {"name": value}}
    context = {"self": _filled(schema, seen)}
    if row.on_update:
        context["oldSelf"] = _filled(schema, at(sample, row.path))
    answer = cel.evaluate(rule["rule"], context)
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id[:120])
def test_the_rule_tells_good_from_bad(row: Row) -> None:
    assert _holds(row, row.good)
    assert not _holds(row, row.bad)
