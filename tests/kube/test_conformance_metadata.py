"""Identity, versions and generations of objects, asserted on the embedded and on the real server alike."""

import re
from typing import Any

import pytest

from tests.harness.rest import MERGE, Rest
from tests.harness.twins import Twins
from tests.harness.widgets import widget

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_create_gives_uid_version_generation_and_timestamp(rest: Rest, widgets: str, namespace: str) -> None:
    answer = rest.post(widgets, widget("a", labels={"x": "y"}, annotations={"k": "v"}))
    assert answer.code == 201
    meta = answer.json["metadata"]
    assert UUID.fullmatch(meta["uid"])
    assert SECONDS.fullmatch(meta["creationTimestamp"])
    assert int(meta["resourceVersion"]) > 0
    assert meta["generation"] == 1
    assert (meta["name"], meta["namespace"]) == ("a", namespace)
    assert (meta["labels"], meta["annotations"]) == ({"x": "y"}, {"k": "v"})
    assert rest.get(f"{widgets}/a").ok() == answer.json


def test_system_fields_of_a_created_object_are_the_servers(rest: Rest, widgets: str) -> None:
    forged: dict[str, Any] = {
        "uid": "mine",
        "generation": 77,
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
    }
    meta = rest.post(widgets, widget("a", **forged)).ok()["metadata"]
    assert UUID.fullmatch(meta["uid"])
    assert meta["generation"] == 1
    assert not meta["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in meta
    assert "deletionGracePeriodSeconds" not in meta


def test_a_resource_version_on_create_is_refused(twins: Twins) -> None:
    answer = twins.ask("POST", twins.widgets, widget("a", resourceVersion="5"))
    assert "resourceVersion should not be set" in answer.json["message"]


def test_a_name_can_be_used_again_with_a_new_uid(rest: Rest, widgets: str) -> None:
    first = rest.post(widgets, widget("a")).ok()
    rest.delete(f"{widgets}/a").ok()
    second = rest.post(widgets, widget("a")).ok()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


def test_generate_name_appends_five_characters(rest: Rest, widgets: str) -> None:
    names = {rest.post(widgets, widget("", generateName="g-")).ok()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"g-[a-z0-9]{5}", name) for name in names)


def test_a_name_wins_over_generate_name(rest: Rest, widgets: str) -> None:
    meta = rest.post(widgets, widget("a", generateName="g-")).ok()["metadata"]
    assert (meta["name"], meta["generateName"]) == ("a", "g-")


def test_generation_counts_changes_of_what_is_wanted_only(rest: Rest, widgets: str) -> None:
    def generation(answer: Any) -> int:
        value: int = answer.ok()["metadata"]["generation"]
        return value

    path = f"{widgets}/a"
    assert generation(rest.post(widgets, widget("a"))) == 1
    assert generation(rest.patch(path, {"metadata": {"labels": {"a": "b"}}})) == 1
    assert generation(rest.patch(path, {"metadata": {"annotations": {"a": "b"}}})) == 1
    assert generation(rest.patch(path, {"spec": {"size": 4}})) == 2
    assert generation(rest.patch(path, {"spec": {"size": 4}})) == 2
    assert generation(rest.patch(f"{path}/status", {"status": {"count": 4}})) == 2
    assert generation(rest.patch(path, {"metadata": {"generation": 40}})) == 2
    assert generation(rest.patch(path, {"metadata": {"finalizers": ["x.io/f"]}})) == 2
    assert generation(rest.delete(path)) == 3
    assert generation(rest.patch(path, {"spec": {"size": 5}})) == 4
    rest.patch(path, {"metadata": {"finalizers": None}}).ok()


def test_a_write_that_changes_nothing_keeps_the_resource_version(rest: Rest, widgets: str) -> None:
    created = rest.post(widgets, widget("a", {"size": 5})).ok()
    again = [
        rest.put(f"{widgets}/a", created),
        rest.patch(f"{widgets}/a", {"spec": {"size": 5}}),
        rest.patch(f"{widgets}/a", {}),
        rest.patch(f"{widgets}/a/status", {"spec": {"size": 6}}),
    ]
    assert {answer.ok()["metadata"]["resourceVersion"] for answer in again} == {
        created["metadata"]["resourceVersion"]
    }


def test_every_write_raises_the_resource_version(rest: Rest, widgets: str) -> None:
    versions = [int(rest.post(widgets, widget("a")).ok()["metadata"]["resourceVersion"])]
    for size in range(4, 9):
        answer = rest.patch(f"{widgets}/a", {"spec": {"size": size}})
        versions.append(int(answer.ok()["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions))
    listed = rest.get(widgets).ok()
    assert int(listed["metadata"]["resourceVersion"]) >= versions[-1]


def test_owner_references_and_finalizers_are_kept_as_written(rest: Rest, widgets: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1", "controller": True}
    created = rest.post(widgets, widget("a", ownerReferences=[owner], finalizers=["x.io/f"])).ok()
    assert created["metadata"]["ownerReferences"] == [owner]
    assert created["metadata"]["finalizers"] == ["x.io/f"]
    rest.patch(f"{widgets}/a", {"metadata": {"finalizers": []}}).ok()


METADATA_REFUSED = {
    "upper-case-name": {"name": "A_b"},
    "long-name": {"name": "x" * 254},
    "no-name": {"name": ""},
    "bad-label-key": {"name": "a", "labels": {"a b": "c"}},
    "bad-label-value": {"name": "a", "labels": {"a": "c d"}},
    "long-label-value": {"name": "a", "labels": {"a": "x" * 64}},
    "bad-annotation-key": {"name": "a", "annotations": {"a b": "c"}},
    "bad-finalizer": {"name": "a", "finalizers": ["a b"]},
    "owner-without-uid": {
        "name": "a",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}],
    },
}


@pytest.mark.parametrize("metadata", METADATA_REFUSED.values(), ids=METADATA_REFUSED)
def test_wrong_metadata_is_refused_in_the_same_words(twins: Twins, metadata: dict[str, Any]) -> None:
    body = widget("") | {"metadata": metadata}
    answer = twins.ask("POST", twins.widgets, body)
    assert answer.failed(422, "Invalid")["details"]["causes"]


def test_a_wrong_generate_name_is_refused(rest: Rest, widgets: str) -> None:
    status = rest.post(widgets, widget("", generateName="A_b-")).failed(422, "Invalid")
    assert "metadata.generateName" in [cause["field"] for cause in status["details"]["causes"]]


def test_only_one_owner_may_be_the_controller(rest: Rest, widgets: str) -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name, "controller": True}
        for name in ("n", "m")
    ]
    status = rest.post(widgets, widget("a", ownerReferences=owners)).failed(422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("metadata.ownerReferences", "FieldValueInvalid")
    assert "Only one reference can have Controller set to true" in cause["message"]


def test_label_and_annotation_values_must_be_strings(rest: Rest, widgets: str) -> None:
    for field, value in (("labels", 1), ("annotations", True)):
        status = rest.post(widgets, widget("a") | {"metadata": {"name": "a", field: {"k": value}}}).failed(
            400, "BadRequest"
        )
        assert field in status["message"]


def test_immutable_metadata_cannot_be_changed(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    for change in ({"name": "b"}, {"namespace": "elsewhere"}, {"uid": "other"}):
        answer = twins.ask("PATCH", f"{twins.widgets}/a", {"metadata": change}, content_type=MERGE)
        assert answer.code in (400, 422), answer.body


def test_creation_timestamp_cannot_be_changed(rest: Rest, widgets: str) -> None:
    created = rest.post(widgets, widget("a")).ok()["metadata"]["creationTimestamp"]
    answer = rest.patch(f"{widgets}/a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})
    assert answer.ok()["metadata"]["creationTimestamp"] == created


def test_create_in_a_missing_namespace_is_not_found(twins: Twins) -> None:
    path = twins.widgets.replace(twins.namespace, "nowhere")
    status = twins.ask("POST", path, widget("a")).failed(404, "NotFound")
    assert status["details"] == {"name": "nowhere", "kind": "namespaces"}


def test_lists_and_gets_in_a_missing_namespace_find_nothing(twins: Twins) -> None:
    path = twins.widgets.replace(twins.namespace, "nowhere")
    assert twins.ask("GET", path).ok()["items"] == []
    twins.ask("GET", f"{path}/a").failed(404, "NotFound")


def test_a_body_without_a_namespace_takes_the_paths(rest: Rest, widgets: str, namespace: str) -> None:
    assert rest.post(widgets, widget("a")).ok()["metadata"]["namespace"] == namespace
    assert rest.post(widgets, widget("b", namespace=namespace)).ok()["metadata"]["namespace"] == namespace
