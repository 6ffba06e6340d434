"""What is too old: versions and continue tokens whose history was compacted away, on both servers alike.

The real server keeps the recent history of most kinds in memory (its watch cache), which a compaction of etcd
does not reach. It does not cache events, so they show what compaction does; for a cached kind, a version from
before the start of the server is as old.
"""

import json
import urllib.request
from typing import Any

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.rest import Rest
from tests.harness.widgets import widget

EXPIRED = (410, "Expired")


def compact(server: object, rest: Rest, revision: str) -> None:
    if isinstance(server, ControlPlane):
        body = json.dumps({"revision": revision, "physical": True}).encode()
        with urllib.request.urlopen(f"{server.etcd_url}/v3/kv/compaction", body, timeout=30):
            return
    rest.request("POST", "/debug/compact", revision=revision).ok()


@pytest.fixture
def events(rest: Rest, namespace: str) -> str:
    """The path of a collection with events a, b and c."""
    path = f"/api/v1/namespaces/{namespace}/events"
    for name in "abc":
        about = {"kind": "Pod", "name": "p", "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about}
        rest.post(path, body).ok()
    return path


def touch(rest: Rest, path: str) -> str:
    """A few more writes; the newest version."""
    for count in (1, 2, 3):
        version = rest.patch(path, {"count": count}).ok()["metadata"]["resourceVersion"]
    return str(version)


def test_a_watch_from_a_compacted_version_is_told_to_start_again(
    server: object, rest: Rest, events: str
) -> None:
    old = rest.get(f"{events}/a").ok()["metadata"]["resourceVersion"]
    compact(server, rest, touch(rest, f"{events}/a"))
    with rest.watch(events, resourceVersion=old) as watch:
        (event,) = watch.to_end()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["status"]) == ("Status", "Failure")
    assert (status["code"], status["reason"]) == EXPIRED
    assert "too old" in status["message"]


def test_a_watch_from_the_newest_version_survives_compaction(server: object, rest: Rest, events: str) -> None:
    newest = touch(rest, f"{events}/a")
    compact(server, rest, newest)
    with rest.watch(events, resourceVersion=newest) as watch:
        rest.patch(f"{events}/b", {"count": 9}).ok()
        assert watch.take(1) == [("MODIFIED", "b")]


def test_an_open_watch_does_not_notice_compaction(server: object, rest: Rest, events: str) -> None:
    start = rest.get(events).ok()["metadata"]["resourceVersion"]
    with rest.watch(events, resourceVersion=start) as watch:
        compact(server, rest, touch(rest, f"{events}/a"))
        rest.delete(f"{events}/b").ok()
        assert watch.take(4) == [("MODIFIED", "a")] * 3 + [("DELETED", "b")]


def test_an_expired_continue_token_comes_with_a_way_on(server: object, rest: Rest, events: str) -> None:
    token = rest.get(events, limit=1).ok()["metadata"]["continue"]
    compact(server, rest, touch(rest, f"{events}/a"))
    status = rest.get(events, limit=1, **{"continue": token}).failed(*EXPIRED)
    assert "continue parameter is too old" in status["message"]
    rest_of_it = rest.get(events, **{"continue": status["metadata"]["continue"]}).ok()
    assert [item["metadata"]["name"] for item in rest_of_it["items"]] == ["b", "c"]


def test_an_exact_list_of_a_compacted_version_is_expired(server: object, rest: Rest, events: str) -> None:
    old = rest.get(f"{events}/a").ok()["metadata"]["resourceVersion"]
    compact(server, rest, touch(rest, f"{events}/a"))
    status = rest.get(events, resourceVersion=old, resourceVersionMatch="Exact").failed(*EXPIRED)
    assert "too old" in status["message"]
    listed = rest.get(events, resourceVersion=old, resourceVersionMatch="NotOlderThan").ok()
    assert len(listed["items"]) == 3


def test_a_custom_resource_is_expired_in_the_same_way(server: object, rest: Rest, widgets: str) -> None:
    made: Any = rest.post(widgets, widget("a")).ok()
    compact(server, rest, made["metadata"]["resourceVersion"])
    with rest.watch(widgets, resourceVersion="1") as watch:
        event = watch.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", *EXPIRED)
    assert "too old resource version: 1" in event["object"]["message"]
    assert rest.get(f"{widgets}/a").ok() == made
