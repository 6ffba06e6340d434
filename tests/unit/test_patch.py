"""Merge patch and JSON patch: the RFCs' laws."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnetes.apiserver.patch import PatchError, json_patch, merge_patch

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "a/b", "~"])
NAMES = st.sampled_from(["a", "b", "a/b", "~1", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(item) for name, item in value.items() if item is not None}


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    gone = {name: None for name in old if name not in new}
    return gone | {
        name: _difference(old[name], item)
        if isinstance(item, dict) and isinstance(old.get(name), dict)
        else item
        for name, item in new.items()
    }


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS)
def test_merging_into_nothing_drops_the_nulls(patch: Any) -> None:
    assert merge_patch({}, patch) == _without_nulls(patch)


@given(OBJECTS, OBJECTS)
def test_the_difference_of_two_objects_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    wanted = _without_nulls(new)
    assert merge_patch(old, _difference(old, wanted)) == wanted


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_changes_neither_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    merge_patch(target, patch)
    assert (target, patch) == before


@pytest.mark.parametrize("patch", [[], "x", 1, True, None])
def test_a_merge_patch_must_be_an_object(patch: Any) -> None:
    with pytest.raises(PatchError, match="error decoding patch") as caught:
        merge_patch({}, patch)
    assert caught.value.code == 400


DOCUMENT = {"a": 1, "s": "text", "l": [1, 2, 3], "o": {"x/y": 1, "t~z": 2}}


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ({"op": "add", "path": "/b", "value": 5}, {**DOCUMENT, "b": 5}),
        ({"op": "add", "path": "/l/-", "value": 9}, {**DOCUMENT, "l": [1, 2, 3, 9]}),
        ({"op": "add", "path": "/l/1", "value": 9}, {**DOCUMENT, "l": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/o/x~1y", "value": 9}, {**DOCUMENT, "o": {"x/y": 9, "t~z": 2}}),
        ({"op": "remove", "path": "/o/t~0z"}, {**DOCUMENT, "o": {"x/y": 1}}),
        ({"op": "remove", "path": "/l/0"}, {**DOCUMENT, "l": [2, 3]}),
        ({"op": "replace", "path": "/l/1", "value": 9}, {**DOCUMENT, "l": [1, 9, 3]}),
        ({"op": "replace", "path": "/a", "value": None}, {**DOCUMENT, "a": None}),
        (
            {"op": "move", "from": "/a", "path": "/b"},
            {"b": 1, "s": "text", "l": [1, 2, 3], "o": DOCUMENT["o"]},
        ),
        ({"op": "move", "from": "/l/0", "path": "/l/2"}, {**DOCUMENT, "l": [2, 3, 1]}),
        ({"op": "copy", "from": "/o", "path": "/p"}, {**DOCUMENT, "p": DOCUMENT["o"]}),
        ({"op": "test", "path": "/l", "value": [1, 2, 3]}, DOCUMENT),
    ],
)
def test_an_operation_does_what_the_rfc_says(op: dict[str, Any], expected: Any) -> None:
    assert json_patch(DOCUMENT, [op]) == expected


@pytest.mark.parametrize(
    "op",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": 1.0},
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/x/y", "value": None},
        {"op": "test", "path": "/nothing", "value": None},
        {"op": "test", "path": "/s/0", "value": "s"},
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/l/3"},
        {"op": "remove", "path": "/l/-"},
        {"op": "remove", "path": "/l/-1"},
        {"op": "replace", "path": "/new", "value": 9},
        {"op": "replace", "path": "", "value": {}},
        {"op": "add", "path": "/b"},
        {"op": "add", "path": "b", "value": 1},
        {"op": "add", "path": 5, "value": 1},
        {"op": "replace", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/4", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "value": 1},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "move", "from": "/o", "path": "/o/b"},
        {"op": "copy", "path": "/y"},
        {"op": "frobnicate", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_what_does_not_apply_is_rejected_without_an_explanation(op: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="rejected our request") as caught:
        json_patch(DOCUMENT, [op])
    assert caught.value.code == 422


@pytest.mark.parametrize("ops", [{}, [1], None, "x", [[]]])
def test_what_is_no_json_patch_is_a_bad_request(ops: Any) -> None:
    with pytest.raises(PatchError, match="error decoding patch") as caught:
        json_patch({}, ops)
    assert caught.value.code == 400


@given(OBJECTS, NAMES, VALUES)
def test_what_was_added_can_be_tested_and_removed(target: Any, name: str, value: Any) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    ops = [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}]
    added = json_patch(target, ops)
    assert json.dumps(added[name]) == json.dumps(value)
    assert json_patch(added, [{"op": "remove", "path": path}]) == {
        k: v for k, v in target.items() if k != name
    }


def test_a_failed_operation_leaves_no_trace_of_the_earlier_ones() -> None:
    document = copy.deepcopy(DOCUMENT)
    with pytest.raises(PatchError):
        json_patch(document, [{"op": "remove", "path": "/o/x~1y"}, {"op": "remove", "path": "/x"}])
    assert document == DOCUMENT
