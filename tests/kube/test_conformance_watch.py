"""Watches: nothing lost, nothing doubled, selectors, bookmarks, ends, on both servers alike."""

from typing import Any

import pytest

from tests.harness.rest import Rest
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, widget


def version_of(listed: Any) -> str:
    version: str = listed["metadata"]["resourceVersion"]
    return version


def test_a_watch_tells_every_change_after_its_version_once(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("before")).ok()
    start = version_of(rest.get(widgets).ok())
    with rest.watch(widgets, resourceVersion=start) as watch:
        created = rest.post(widgets, widget("a")).ok()
        updated = rest.patch(f"{widgets}/a", {"spec": {"size": 4}}).ok()
        status = rest.patch(f"{widgets}/a/status", {"status": {"count": 1}}).ok()
        rest.patch(f"{widgets}/a", {"spec": {"size": 4}}).ok()
        rest.delete(f"{widgets}/a").ok()
        rest.post(widgets, widget("sentinel")).ok()
        events = [watch.next() for _ in range(5)]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "sentinel"),
    ]
    assert [e["object"] for e in events[:3]] == [created, updated, status]
    assert {e["object"]["kind"] for e in events} == {"Widget"}
    versions = [int(version_of(e["object"])) for e in events]
    assert versions == sorted(set(versions))


def test_a_deleted_object_is_told_in_its_last_state_at_the_deletions_version(
    rest: Rest, widgets: str
) -> None:
    created = rest.post(widgets, widget("a", {"size": 7})).ok()
    with rest.watch(widgets, resourceVersion=version_of(created)) as watch:
        rest.delete(f"{widgets}/a").ok()
        event = watch.next()
    assert event["type"] == "DELETED"
    assert event["object"]["spec"]["size"] == 7
    assert int(version_of(event["object"])) > int(version_of(created))


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_watch_resumes_after_any_event(rest: Rest, widgets: str, steps: int) -> None:
    start = version_of(rest.get(widgets).ok())
    rest.post(widgets, widget("a")).ok()
    rest.patch(f"{widgets}/a", {"spec": {"size": 4}}).ok()
    rest.post(widgets, widget("b")).ok()
    rest.delete(f"{widgets}/a").ok()
    rest.post(widgets, widget("sentinel")).ok()
    seen: list[tuple[str, str]] = []
    with rest.watch(widgets, resourceVersion=start) as watch:
        for _ in range(steps):
            event = watch.next()
            seen.append((event["type"], event["object"]["metadata"]["name"]))
    with rest.watch(widgets, resourceVersion=version_of(event["object"])) as watch:
        seen += watch.take(5 - steps)
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("ADDED", "sentinel")]
    assert seen == expected


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["unset", "zero"])
def test_a_watch_from_nowhere_begins_with_what_is_there(
    rest: Rest, widgets: str, query: dict[str, str]
) -> None:
    for name in "ab":
        rest.post(widgets, widget(name)).ok()
    with rest.watch(widgets, **query) as watch:
        assert sorted(watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        rest.post(widgets, widget("c")).ok()
        assert watch.take(1) == [("ADDED", "c")]


def test_crossing_a_label_selector_is_coming_and_going(rest: Rest, widgets: str) -> None:
    start = version_of(rest.get(widgets).ok())
    with rest.watch(widgets, resourceVersion=start, labelSelector="in=yes") as watch:
        rest.post(widgets, widget("a")).ok()
        rest.patch(f"{widgets}/a", {"metadata": {"labels": {"in": "yes"}}}).ok()
        rest.patch(f"{widgets}/a", {"spec": {"size": 4}}).ok()
        left = rest.patch(f"{widgets}/a", {"metadata": {"labels": {"in": "no"}}}).ok()
        rest.delete(f"{widgets}/a").ok()
        rest.post(widgets, widget("sentinel", labels={"in": "yes"})).ok()
        events = [watch.next() for _ in range(4)]
    assert [e["type"] for e in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    gone = events[2]["object"]
    assert gone["metadata"]["labels"] == {"in": "yes"}
    assert version_of(gone) == version_of(left)


@pytest.mark.parametrize("field", ["metadata.name=a", "spec.nodeName=n1"])
def test_a_field_selector_hides_other_objects(rest: Rest, widgets: str, field: str) -> None:
    start = version_of(rest.get(widgets).ok())
    with rest.watch(widgets, resourceVersion=start, fieldSelector=field) as watch:
        rest.post(widgets, widget("x", {"nodeName": "n2"})).ok()
        rest.post(widgets, widget("a", {"nodeName": "n1"})).ok()
        rest.patch(f"{widgets}/x", {"spec": {"size": 4}}).ok()
        rest.delete(f"{widgets}/x").ok()
        rest.delete(f"{widgets}/a").ok()
        assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_moving_to_another_node_is_coming_and_going(rest: Rest, widgets: str) -> None:
    created = rest.post(widgets, widget("a", {"nodeName": "n1"})).ok()
    start = version_of(created)
    with (
        rest.watch(widgets, resourceVersion=start, fieldSelector="spec.nodeName=n1") as old,
        rest.watch(widgets, resourceVersion=start, fieldSelector="spec.nodeName=n2") as new,
    ):
        rest.patch(f"{widgets}/a", {"spec": {"nodeName": "n2"}}).ok()
        assert old.take(1) == [("DELETED", "a")]
        assert new.take(1) == [("ADDED", "a")]


def test_a_watch_across_namespaces_sees_them_all(rest: Rest, widgets: str, namespace: str) -> None:
    path = f"/apis/{GROUP}/v1/widgets"
    start = version_of(rest.get(path).ok())
    with rest.watch(path, resourceVersion=start) as watch:
        rest.post(widgets, widget("a")).ok()
        assert watch.next()["object"]["metadata"]["namespace"] == namespace


def test_a_watch_ends_after_timeout_seconds(rest: Rest, widgets: str) -> None:
    created = rest.post(widgets, widget("a")).ok()
    with rest.watch(widgets, resourceVersion=version_of(created), timeoutSeconds=1) as watch:
        assert watch.to_end() == []


def test_bookmarks_carry_a_version_to_resume_from(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a")).ok()
    query: dict[str, Any] = {"allowWatchBookmarks": True, "sendInitialEvents": True}
    with rest.watch(widgets, resourceVersionMatch="NotOlderThan", **query) as watch:
        assert watch.take(1) == [("ADDED", "a")]
        bookmark = watch.next()
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Widget")
    meta = bookmark["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    rest.post(widgets, widget("b")).ok()
    with rest.watch(widgets, resourceVersion=meta["resourceVersion"]) as watch:
        assert watch.take(1) == [("ADDED", "b")]


@pytest.mark.slow
def test_a_bookmark_tells_a_quiet_watcher_how_far_it_is(rest: Rest, widgets: str) -> None:
    start = version_of(rest.get(widgets).ok())
    query: dict[str, Any] = {"allowWatchBookmarks": True, "timeoutSeconds": 4}
    with rest.watch(widgets, resourceVersion=start, fieldSelector="metadata.name=other", **query) as watch:
        created = rest.post(widgets, widget("a")).ok()
        events = watch.to_end()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    last = events[-1]["object"]
    assert int(version_of(last)) >= int(version_of(created))
    assert set(last) == {"apiVersion", "kind", "metadata"}
    assert set(last["metadata"]) <= {"resourceVersion", "creationTimestamp"}


def test_one_object_can_be_watched_by_name(rest: Rest, widgets: str) -> None:
    rest.post(widgets, widget("a")).ok()
    with rest.watch(widgets, fieldSelector="metadata.name=a") as watch:
        assert watch.take(1) == [("ADDED", "a")]
        rest.delete(f"{widgets}/a").ok()
        assert watch.take(1) == [("DELETED", "a")]


@pytest.mark.parametrize(
    "query",
    [{"fieldSelector": "spec.size=1"}, {"timeoutSeconds": "soon"}],
    ids=lambda query: "&".join(query),
)
def test_a_wrong_watch_is_refused(twins: Twins, query: dict[str, str]) -> None:
    twins.alike(lambda rest: rest.get(twins.widgets, watch="true", **query)).failed(400, "BadRequest")


def test_table_rows_can_be_watched(rest: Rest, widgets: str) -> None:
    start = version_of(rest.get(widgets).ok())
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    with rest.watch(widgets, resourceVersion=start, accept=accept) as watch:
        rest.post(widgets, widget("a")).ok()
        first = watch.next()
        rest.delete(f"{widgets}/a").ok()
        second = watch.next()
    assert (first["type"], first["object"]["kind"]) == ("ADDED", "Table")
    assert first["object"]["rows"][0]["cells"][:3] == ["a", 3, "red"]
    assert [column["name"] for column in first["object"]["columnDefinitions"]][:3] == [
        "Name",
        "Size",
        "Color",
    ]
    assert second["type"] == "DELETED"
    assert not second["object"].get("columnDefinitions")
