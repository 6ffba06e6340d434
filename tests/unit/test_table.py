"""Tables for kubectl get: columns, JSONPaths, ages."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnetes.api.resource import Resource
from subnetes.apiserver.jsonpath import MISSING, compile_path
from subnetes.apiserver.resources import Column, Served
from subnetes.apiserver.table import human_duration, table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "apiVersion": "t.io/v1",
    "kind": "Thing",
    "metadata": {"name": "x", "creationTimestamp": "2026-01-02T03:00:00Z", "annotations": {"a.b/c": "noted"}},
    "spec": {
        "n": 3,
        "r": 2.5,
        "yes": True,
        "tags": ["a", "b"],
        "map": {"k": 1},
        "null": None,
        "since": "tomorrow",
    },
    "status": {"conditions": [{"type": "Idle", "status": "False"}, {"type": "Ready", "status": "True"}]},
}


def _served(*columns: Column, plural: str = "things", group: str = "t.io") -> Served:
    resource = Resource(group, "v1", "Thing", plural)
    return Served(resource=resource, singular="thing", list_kind="ThingList", columns=columns)


def _table(served: Served, *items: dict[str, Any], **options: Any) -> dict[str, Any]:
    standard: dict[str, Any] = {"resource_version": "7", "continue_": None, "remaining": None, "now": NOW}
    return table(served, list(items), **(standard | options))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.n", 3),
        (".metadata.annotations['a.b/c']", "noted"),
        (".metadata.annotations.a\\.b/c", "noted"),
        (".spec.tags[0]", "a"),
        (".spec.tags[2]", MISSING),
        (".spec.tags[*]", "a"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Idle')].status", "False"),
        ('.spec.map[?(@.type=="Ready")].status', MISSING),
        ('.spec.tags[?(@.type=="Ready")].status', MISSING),
        ('.status.conditions[?(@.type=="None")].status', MISSING),
        (".spec.none.deeper", MISSING),
        (".spec.n[", MISSING),
    ],
)
def test_a_json_path_finds_the_first_value(path: str, found: Any) -> None:
    assert compile_path(path)(OBJECT) == found


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("integer", ".spec.n", 3),
        ("integer", ".spec.r", 2),
        ("integer", ".spec.yes", None),
        ("number", ".spec.r", 2.5),
        ("boolean", ".spec.yes", True),
        ("boolean", ".spec.n", None),
        ("string", ".spec.n", "3"),
        ("string", ".spec.yes", "true"),
        ("string", ".spec.tags", '["a","b"]'),
        ("string", ".spec.map", '{"k":1}'),
        ("string", ".spec.absent", None),
        ("date", ".metadata.creationTimestamp", "4m5s"),
        ("date", ".spec.since", "<invalid>"),
        ("date", ".spec.n", None),
    ],
)
def test_a_cell_has_the_type_of_its_column(kind: str, path: str, cell: Any) -> None:
    (row,) = _table(_served(Column("C", kind, path)), OBJECT)["rows"]
    assert row["cells"] == ["x", cell]


def test_a_kind_without_columns_shows_its_age() -> None:
    shown = _table(_served(), OBJECT)
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Age"]
    assert shown["rows"][0]["cells"] == ["x", "4m5s"]


def test_wide_columns_keep_their_priority_and_paging_is_told() -> None:
    shown = _table(_served(Column("Wide", "string", ".spec.n", priority=1)), continue_="next", remaining=4)
    assert shown["columnDefinitions"][1]["priority"] == 1
    assert shown["metadata"] == {"resourceVersion": "7", "continue": "next", "remainingItemCount": 4}


@pytest.mark.parametrize(
    ("include", "found"),
    [
        ("None", None),
        ("Object", OBJECT),
        (
            "Metadata",
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": OBJECT["metadata"]},
        ),
    ],
)
def test_a_row_carries_as_much_of_the_object_as_was_asked_for(include: str, found: Any) -> None:
    assert _table(_served(), OBJECT, include_object=include)["rows"][0]["object"] == found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (601, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (8 * 3600 + 60, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400 + 86400, "8y"),
    ],
)
def test_ages_are_written_as_by_kubectl(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


@given(st.integers(0, 10**9))
def test_an_age_is_short_and_never_overstated(seconds: int) -> None:
    text = human_duration(timedelta(seconds=seconds))
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
    said = sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([smhdy])", text))
    assert said <= seconds < said * 1.2 + 60
    assert len(text) <= 6
