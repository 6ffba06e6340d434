"""Deletion: finalizers, preconditions, collections and dry runs, on both servers alike."""

from typing import Any

from tests.harness.rest import JSON_PATCH, MERGE, Rest
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, collection, widget

FINALIZER = "conformance.subnetes.io/hold"


def names(rest: Rest, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in rest.get(path).ok()["items"]]


def test_deleting_answers_success_and_the_object_is_gone(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    status = twins.ask("DELETE", f"{twins.widgets}/a").ok()
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert (status["details"]["name"], status["details"]["group"]) == ("a", GROUP)
    assert status["details"]["kind"] == "widgets"
    assert status["details"]["uid"]
    twins.ask("GET", f"{twins.widgets}/a").failed(404, "NotFound")


def test_deleting_what_is_not_there_is_not_found(twins: Twins) -> None:
    status = twins.ask("DELETE", f"{twins.widgets}/a").failed(404, "NotFound")
    assert status["details"] == {"name": "a", "group": GROUP, "kind": "widgets"}


def test_a_finalizer_holds_the_object_until_it_is_taken_away(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    twins.do("POST", twins.widgets, widget("a", finalizers=[FINALIZER]))
    deleting = twins.ask("DELETE", path).ok()
    assert deleting["kind"] == "Widget"
    assert deleting["metadata"]["deletionTimestamp"]
    assert deleting["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleting["metadata"]["generation"] == 2
    again = twins.ask("DELETE", path).ok()
    assert again["metadata"]["generation"] == 2
    last = twins.ask("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE).ok()
    assert last["metadata"]["name"] == "a"
    twins.ask("GET", path).failed(404, "NotFound")


def test_a_deleting_object_keeps_its_deletion_and_can_be_updated(rest: Rest, widgets: str) -> None:
    path = f"{widgets}/a"
    rest.post(widgets, widget("a", finalizers=[FINALIZER])).ok()
    deleted = rest.delete(path).ok()["metadata"]["deletionTimestamp"]
    patch = {"metadata": {"deletionTimestamp": None, "labels": {"x": "y"}}, "spec": {"size": 4}}
    updated = rest.patch(path, patch).ok()
    assert updated["metadata"]["deletionTimestamp"] == deleted
    assert (updated["spec"]["size"], updated["metadata"]["labels"]) == (4, {"x": "y"})
    assert rest.patch(f"{path}/status", {"status": {"count": 1}}).ok()["status"] == {"count": 1}
    rest.patch(path, {"metadata": {"finalizers": []}}).ok()
    rest.get(path).failed(404, "NotFound")


def test_a_deleting_object_gets_no_new_finalizers(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    twins.do("POST", twins.widgets, widget("a", finalizers=[FINALIZER]))
    twins.do("DELETE", path)
    patch = {"metadata": {"finalizers": [FINALIZER, "x.io/new"]}}
    status = twins.ask("PATCH", path, patch, content_type=MERGE).failed(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.finalizers"
    twins.do("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)


def test_each_finalizer_must_go(rest: Rest, widgets: str) -> None:
    path = f"{widgets}/a"
    rest.post(widgets, widget("a", finalizers=["x.io/1", "x.io/2"])).ok()
    rest.delete(path).ok()
    first = rest.patch(path, [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH).ok()
    assert first["metadata"]["finalizers"] == ["x.io/2"]
    found = rest.get(path).ok()
    found["metadata"].pop("finalizers")
    rest.put(path, found).ok()
    rest.get(path).failed(404, "NotFound")


def test_a_name_is_taken_while_its_object_is_deleting(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a", finalizers=[FINALIZER]))
    twins.do("DELETE", f"{twins.widgets}/a")
    twins.ask("POST", twins.widgets, widget("a")).failed(409, "AlreadyExists")
    twins.do("PATCH", f"{twins.widgets}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)


def test_a_finalizer_cannot_be_taken_away_at_the_status_endpoint(rest: Rest, widgets: str) -> None:
    path = f"{widgets}/a"
    rest.post(widgets, widget("a", finalizers=[FINALIZER])).ok()
    answer = rest.patch(f"{path}/status", {"metadata": {"finalizers": None}, "status": {"count": 1}})
    assert answer.ok()["metadata"]["finalizers"] == [FINALIZER]
    rest.patch(path, {"metadata": {"finalizers": None}}).ok()


def test_watchers_see_the_deletion_in_two_steps(rest: Rest, widgets: str) -> None:
    path = f"{widgets}/a"
    created = rest.post(widgets, widget("a", finalizers=[FINALIZER])).ok()
    with rest.watch(widgets, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
        rest.delete(path).ok()
        rest.patch(path, {"metadata": {"finalizers": None}}).ok()
        modified, deleted = watch.next(), watch.next()
    assert (modified["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert modified["object"]["metadata"]["deletionTimestamp"]
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(
        modified["object"]["metadata"]["resourceVersion"]
    )


def test_preconditions_protect_what_was_not_meant(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    twins.do("POST", twins.widgets, widget("a"))
    other = {"preconditions": {"uid": "other"}}
    by_uid = twins.alike(lambda rest: rest.delete(path, other)).failed(409, "Conflict")
    assert "the UID in the precondition (other) does not match" in by_uid["message"]
    for rest in (twins.real, twins.embedded):
        status = rest.delete(path, {"preconditions": {"resourceVersion": "1"}}).failed(409, "Conflict")
        assert "the ResourceVersion in the precondition (1) does not match" in status["message"]

    def right(rest: Rest) -> Any:
        meta = rest.get(path).ok()["metadata"]
        wanted = {key: meta[key] for key in ("uid", "resourceVersion")}
        return rest.delete(path, {"preconditions": wanted})

    assert twins.both(right).ok()["status"] == "Success"


def test_delete_options_may_name_their_kind(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a")).ok()
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert rest.delete(f"{widgets}/a", options).ok()["status"] == "Success"


def test_wrong_delete_options_are_refused(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    twins.do("POST", twins.widgets, widget("a"))
    sideways = {"propagationPolicy": "Sideways"}
    twins.alike(lambda rest: rest.delete(path, sideways)).failed(422, "Invalid")
    for rest in (twins.real, twins.embedded):
        rest.delete(path, {"preconditions": 7}).failed(400, "BadRequest")
        rest.delete(path, b"{").failed(400, "BadRequest")
    twins.ask("GET", path).ok()


def test_a_collection_is_deleted_by_selector(rest: Rest, widgets: str) -> None:
    for name in "abcd":
        rest.post(widgets, widget(name, {"color": "blue"}, labels={"odd": str(name in "ac").lower()})).ok()
    answer = rest.delete(widgets, labelSelector="odd=true").ok()
    assert (answer["kind"], [item["metadata"]["name"] for item in answer["items"]]) == (
        "WidgetList",
        ["a", "c"],
    )
    assert names(rest, widgets) == ["b", "d"]
    rest.delete(widgets, fieldSelector="metadata.name=d").ok()
    assert names(rest, widgets) == ["b"]
    rest.delete(widgets).ok()
    assert names(rest, widgets) == []


def test_deleting_a_collection_respects_finalizers_and_namespaces(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("held", finalizers=[FINALIZER])).ok()
    rest.post(widgets, widget("free")).ok()
    other = collection("default")
    rest.post(other, widget("bystander")).ok()
    rest.delete(widgets).ok()
    assert names(rest, widgets) == ["held"]
    assert "bystander" in names(rest, other)
    rest.patch(f"{widgets}/held", {"metadata": {"finalizers": None}}).ok()
    rest.delete(f"{other}/bystander").ok()


def test_a_dry_run_answers_and_changes_nothing(twins: Twins) -> None:
    path = f"{twins.widgets}/a"
    made = twins.ask("POST", twins.widgets, widget("a"), dryRun="All")
    assert (made.code, made.json["spec"]) == (201, {"size": 3, "color": "red"})
    twins.ask("GET", path).failed(404, "NotFound")
    twins.ask("POST", twins.widgets, widget("b", {"size": 0}), dryRun="All").failed(422, "Invalid")
    twins.do("POST", twins.widgets, widget("a"))
    changed = twins.ask("PATCH", path, {"spec": {"size": 4}}, content_type=MERGE, dryRun="All")
    assert changed.ok()["spec"]["size"] == 4
    assert twins.ask("DELETE", path, dryRun="All").ok()["status"] == "Success"
    assert twins.ask("DELETE", path, {"dryRun": ["All"]}).ok()["status"] == "Success"
    assert twins.ask("GET", path).ok()["spec"]["size"] == 3


def test_an_unknown_dry_run_is_refused(twins: Twins) -> None:
    twins.alike(lambda rest: rest.post(twins.widgets, widget("a"), dryRun="Some")).failed(422, "Invalid")
