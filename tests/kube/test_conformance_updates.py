"""Optimistic concurrency, PUT, merge patch, JSON patch and the status subresource, on both servers alike."""

from typing import Any

import pytest

from tests.harness.rest import JSON_PATCH, MERGE, STRATEGIC, Rest
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, widget


def test_put_replaces_what_was_read(rest: Rest, widgets: str) -> None:
    found = rest.post(widgets, widget("a", {"size": 5, "label": "abc"}, labels={"x": "y"})).ok()
    found["spec"] = {"size": 6}
    found["metadata"].pop("labels")
    stored = rest.put(f"{widgets}/a", found).ok()
    assert stored["spec"] == {"size": 6, "color": "red"}
    assert "labels" not in stored["metadata"]
    assert stored["metadata"]["uid"] == found["metadata"]["uid"]
    assert rest.get(f"{widgets}/a").ok() == stored


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_stale_put_is_a_conflict(twins: Twins, subresource: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    path = f"{twins.widgets}/a"
    stale = {rest: rest.get(path).ok() for rest in (twins.real, twins.embedded)}
    twins.do("PATCH", path, {"spec": {"size": 7}}, content_type=MERGE)
    answer = twins.both(lambda rest: rest.put(path + subresource, stale[rest]))
    status = answer.failed(409, "Conflict")
    assert status["details"] == {"name": "a", "group": GROUP, "kind": "widgets"}
    assert twins.embedded.get(path).ok()["spec"]["size"] == 7


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_patch_with_a_stale_resource_version_is_a_conflict(twins: Twins, subresource: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    path = f"{twins.widgets}/a{subresource}"
    merge = {"metadata": {"resourceVersion": "1"}, "spec": {"size": 4}, "status": {"count": 1}}
    twins.ask("PATCH", path, merge, content_type=MERGE).failed(409, "Conflict")
    operations = [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]
    twins.ask("PATCH", path, operations, content_type=JSON_PATCH).failed(409, "Conflict")


def test_a_patch_with_the_current_resource_version_is_taken(rest: Rest, widgets: str) -> None:
    version = rest.post(widgets, widget("a")).ok()["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"size": 4}}
    assert rest.patch(f"{widgets}/a", patch).ok()["spec"]["size"] == 4
    rest.patch(f"{widgets}/a", patch).failed(409, "Conflict")


def test_a_custom_resource_is_never_put_without_a_resource_version(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    status = twins.ask("PUT", f"{twins.widgets}/a", widget("a")).failed(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.resourceVersion"]
    twins.ask("PUT", f"{twins.widgets}/a/status", widget("a")).failed(422, "Invalid")


def test_a_config_map_may_be_put_without_a_resource_version(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    rest.post(path, body | {"data": {"a": "1"}}).ok()
    assert rest.put(f"{path}/c", body | {"data": {"b": "2"}}).ok()["data"] == {"b": "2"}


def test_a_put_of_another_uid_is_a_conflict(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    path = f"{twins.widgets}/a"

    def with_uid(rest: Rest) -> Any:
        found = rest.get(path).ok()
        return found | {"metadata": found["metadata"] | {"uid": "other"}}

    for rest in (twins.real, twins.embedded):
        status = rest.put(path, with_uid(rest)).failed(409, "Conflict")
        assert "Precondition failed: UID in precondition: other, UID in object meta: " in status["message"]


def test_put_and_patch_of_what_is_not_there_are_not_found(twins: Twins) -> None:
    for path in (f"{twins.widgets}/gone", f"{twins.widgets}/gone/status"):
        body = widget("gone", resourceVersion="1")
        status = twins.ask("PUT", path, body).failed(404, "NotFound")
        assert status["details"] == {"name": "gone", "group": GROUP, "kind": "widgets"}
        twins.ask("PATCH", path, {"spec": {}}, content_type=MERGE).failed(404, "NotFound")


@pytest.mark.parametrize(
    ("patch", "spec"),
    [
        ({"size": 4}, {"size": 4, "color": "red", "counts": {"a": 1, "b": 2}, "tags": ["x", "y"]}),
        (
            {"counts": {"a": None, "c": 3}},
            {"size": 3, "color": "red", "counts": {"b": 2, "c": 3}, "tags": ["x", "y"]},
        ),
        ({"tags": ["z"]}, {"size": 3, "color": "red", "counts": {"a": 1, "b": 2}, "tags": ["z"]}),
        ({"counts": None, "tags": None}, {"size": 3, "color": "red"}),
        (
            {"size": None, "color": None},
            {"size": 3, "color": "red", "counts": {"a": 1, "b": 2}, "tags": ["x", "y"]},
        ),
    ],
    ids=["set", "map-keys", "lists-are-replaced", "remove", "defaults-return"],
)
def test_merge_patch(rest: Rest, widgets: str, patch: Any, spec: Any) -> None:
    rest.post(widgets, widget("a", {"counts": {"a": 1, "b": 2}, "tags": ["x", "y"]})).ok()
    assert rest.patch(f"{widgets}/a", {"spec": patch}).ok()["spec"] == spec
    assert rest.get(f"{widgets}/a").ok()["spec"] == spec


@pytest.mark.parametrize(
    ("operations", "spec"),
    [
        ([{"op": "add", "path": "/spec/label", "value": "abc"}], {"label": "abc"}),
        ([{"op": "add", "path": "/spec/tags/-", "value": "z"}], {"tags": ["x", "y", "z"]}),
        ([{"op": "add", "path": "/spec/tags/1", "value": "z"}], {"tags": ["x", "z", "y"]}),
        ([{"op": "remove", "path": "/spec/tags/0"}], {"tags": ["y"]}),
        ([{"op": "replace", "path": "/spec/size", "value": 5}], {"size": 5}),
        ([{"op": "move", "from": "/spec/tags/0", "path": "/spec/tags/1"}], {"tags": ["y", "x"]}),
        ([{"op": "copy", "from": "/spec/tags/0", "path": "/spec/label"}], {"label": "xx"}),
        (
            [
                {"op": "test", "path": "/spec/size", "value": 3},
                {"op": "replace", "path": "/spec/size", "value": 4},
            ],
            {"size": 4},
        ),
        (
            [
                {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}},
                {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "2"},
            ],
            {},
        ),
    ],
    ids=["add", "append", "insert", "remove", "replace", "move", "copy", "test", "escaped-path"],
)
def test_json_patch(twins: Twins, operations: Any, spec: Any) -> None:
    first = "xx" if operations[0]["op"] == "copy" else "x"
    twins.do("POST", twins.widgets, widget("a", {"tags": [first, "y"]}))
    answer = twins.ask("PATCH", f"{twins.widgets}/a", operations, content_type=JSON_PATCH)
    assert answer.ok()["spec"] == {"size": 3, "color": "red", "tags": [first, "y"]} | spec


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/size", "value": 9},
        {"op": "test", "path": "/spec/nope", "value": 9},
        {"op": "remove", "path": "/spec/nope"},
        {"op": "add", "path": "/spec/none/deep", "value": 1},
        {"op": "add", "path": "/spec/tags/7", "value": "x"},
        {"op": "remove", "path": "/spec/tags/7"},
        {"op": "move", "from": "/spec/nope", "path": "/spec/label"},
    ],
    ids=lambda operation: f"{operation['op']}-{operation['path'].strip('/').replace('/', '.')}",
)
def test_a_json_patch_that_does_not_apply_changes_nothing(twins: Twins, operation: Any) -> None:
    twins.do("POST", twins.widgets, widget("a", {"tags": ["x"]}))
    operations = [{"op": "replace", "path": "/spec/size", "value": 8}, operation]
    twins.ask("PATCH", f"{twins.widgets}/a", operations, content_type=JSON_PATCH).failed(422, "Invalid")
    assert twins.embedded.get(f"{twins.widgets}/a").ok()["spec"]["size"] == 3


def test_a_patch_is_validated_as_a_whole_object(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    twins.ask("PATCH", f"{twins.widgets}/a", {"spec": {"size": 11}}, content_type=MERGE).failed(
        422, "Invalid"
    )
    operations = [{"op": "add", "path": "/spec/label", "value": "TOO LONG"}]
    twins.ask("PATCH", f"{twins.widgets}/a", operations, content_type=JSON_PATCH).failed(422, "Invalid")


def test_strategic_merge_is_refused_for_custom_resources(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a")).ok()
    rest.patch(f"{widgets}/a", {"spec": {}}, STRATEGIC).failed(415, "UnsupportedMediaType")


def test_the_status_of_a_new_object_is_dropped(rest: Rest, widgets: str) -> None:
    body = widget("a") | {"status": {"state": "On"}}
    assert "status" not in rest.post(widgets, body).ok()


def test_the_main_endpoint_cannot_write_status(rest: Rest, widgets: str) -> None:
    found = rest.post(widgets, widget("a")).ok()
    put = rest.put(f"{widgets}/a", found | {"spec": {"size": 4}, "status": {"state": "On"}}).ok()
    assert (put["spec"]["size"], "status" in put) == (4, False)
    merged = rest.patch(f"{widgets}/a", {"spec": {"size": 5}, "status": {"state": "On"}}).ok()
    assert (merged["spec"]["size"], "status" in merged) == (5, False)
    operations = [{"op": "add", "path": "/status", "value": {"state": "On"}}]
    assert "status" not in rest.patch(f"{widgets}/a", operations, JSON_PATCH).ok()


def test_the_status_endpoint_writes_status_alone(rest: Rest, widgets: str) -> None:
    path = f"{widgets}/a"
    found = rest.post(widgets, widget("a", labels={"x": "y"})).ok()
    found |= {"spec": {"size": 9}, "status": {"state": "On"}}
    found["metadata"] = found["metadata"] | {
        "labels": {"x": "z"},
        "annotations": {"k": "v"},
        "finalizers": ["a.io/b"],
    }
    put = rest.put(f"{path}/status", found).ok()
    assert put["spec"]["size"] == 3
    assert put["status"] == {"state": "On"}
    assert put["metadata"]["labels"] == {"x": "y"}
    assert "annotations" not in put["metadata"]
    assert "finalizers" not in put["metadata"]
    assert put["metadata"]["generation"] == 1
    merged = rest.patch(f"{path}/status", {"status": {"count": 1}, "spec": {"size": 8}}).ok()
    assert (merged["spec"]["size"], merged["status"]) == (3, {"state": "On", "count": 1})
    operations = [
        {"op": "replace", "path": "/status/count", "value": 2},
        {"op": "replace", "path": "/spec/size", "value": 8},
    ]
    patched = rest.patch(f"{path}/status", operations, JSON_PATCH).ok()
    assert (patched["spec"]["size"], patched["status"]) == (3, {"state": "On", "count": 2})
    assert rest.get(f"{path}/status").ok() == rest.get(path).ok() == patched


def test_a_main_write_keeps_the_status(rest: Rest, widgets: str) -> None:
    found = rest.post(widgets, widget("a")).ok()
    rest.patch(f"{widgets}/a/status", {"status": {"state": "On"}}).ok()
    found = rest.get(f"{widgets}/a").ok()
    found.pop("status")
    assert rest.put(f"{widgets}/a", found | {"spec": {"size": 4}}).ok()["status"] == {"state": "On"}


def test_a_wrong_status_is_refused(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    patch = {"status": {"state": "Maybe", "conditions": [{"type": "Ready"}]}}
    status = twins.ask("PATCH", f"{twins.widgets}/a/status", patch, content_type=MERGE).failed(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert {"status.state", "status.conditions[0].status"} <= fields


def test_a_strategic_merge_without_lists_is_a_merge(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"x": "y"}}}
    twins.do("POST", path, body | {"data": {"a": "1", "b": "2"}})
    change = {"metadata": {"labels": None, "annotations": {"k": "v"}}, "data": {"a": None, "c": "3"}}
    merged = twins.ask("PATCH", f"{path}/c", change, content_type=STRATEGIC).ok()
    assert merged["data"] == {"b": "2", "c": "3"}
