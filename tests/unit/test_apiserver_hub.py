"""Who is told of a write, and as what."""

from typing import Any

import orjson
import pytest

from subnetes.apiserver.hub import Event, Hub, Interest, Transition, Watcher
from subnetes.apiserver.selectors import parse_fields, parse_labels
from subnetes.apiserver.store import Change

PODS = "pods"


def pod(name: str, *, node: str = "", namespace: str = "ns", rv: int = 1, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(rv), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def change(new: dict[str, Any], old: dict[str, Any] | None, *, deleted: bool = False) -> Change:
    metadata = new["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    before = orjson.dumps(old) if old else None
    return Change(int(metadata["resourceVersion"]), PODS, key, orjson.dumps(new), deleted, before)


def publish(
    hub: Hub, new: dict[str, Any], old: dict[str, Any] | None = None, *, deleted: bool = False
) -> None:
    hub.publish(change(new, old, deleted=deleted), new, old)


def fields(text: str, namespace: str = "") -> Interest:
    selector = parse_fields(text, ["metadata.name", "metadata.namespace", "spec.nodeName"])
    return Interest(PODS, namespace, selector.equals, selector.matches)


def names(watcher: Watcher) -> list[tuple[str, str]]:
    return [(event.type, orjson.loads(event.value)["metadata"]["name"]) for event in watcher.pending()]


def test_everybody_sees_what_they_asked_for_and_nothing_else() -> None:
    hub = Hub()
    everything, elsewhere = hub.join(Interest(PODS)), hub.join(Interest("nodes"))
    namespace = hub.join(Interest(PODS, "ns"))
    named, node = hub.join(fields("metadata.name=a")), hub.join(fields("spec.nodeName=n1"))
    publish(hub, pod("a", node="n2"))
    publish(hub, pod("b", node="n1", namespace="other"))
    assert names(everything) == [("ADDED", "a"), ("ADDED", "b")]
    assert names(elsewhere) == []
    assert names(namespace) == [("ADDED", "a")]
    assert names(named) == [("ADDED", "a")]
    assert names(node) == [("ADDED", "b")]


def test_a_write_looks_only_at_watchers_that_could_match(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    watchers = [hub.join(fields(f"spec.nodeName=n{number}")) for number in range(5000)]
    offered: list[Watcher] = []
    monkeypatch.setattr(Watcher, "offer", lambda self, _: offered.append(self))
    publish(hub, pod("a", node="n7"))
    assert offered == [watchers[7]]
    offered.clear()
    publish(hub, pod("a", node="n8", rv=2), pod("a", node="n7"))
    assert set(offered) == {watchers[7], watchers[8]}


def test_a_field_and_a_namespace_must_both_match() -> None:
    hub = Hub()
    watcher = hub.join(fields("spec.nodeName=n1", namespace="ns"))
    publish(hub, pod("a", node="n1", namespace="other"))
    publish(hub, pod("b", node="n1"))
    assert names(watcher) == [("ADDED", "b")]


def test_an_object_that_enters_a_selector_is_added_and_one_that_leaves_is_deleted() -> None:
    hub = Hub()
    labels = parse_labels("app=web")
    watcher = hub.join(Interest(PODS, matches=lambda obj: labels.matches(obj["metadata"]["labels"])))
    outside, inside, still, gone = (
        pod("a", rv=1, app="db"),
        pod("a", rv=2, app="web"),
        pod("a", rv=3, app="web", tier="x"),
        pod("a", rv=4, app="db"),
    )
    publish(hub, outside)
    publish(hub, inside, outside)
    publish(hub, still, inside)
    publish(hub, gone, still)
    publish(hub, pod("a", rv=5, app="db"), gone, deleted=True)
    events = watcher.pending()
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    left = orjson.loads(events[2].value)["metadata"]
    assert left["labels"] == {"app": "web", "tier": "x"}, "the state that the watcher knew"
    assert left["resourceVersion"] == "4", (
        "the revision at which it left, so that a resume goes on from there"
    )


def test_a_deletion_is_seen_by_those_who_saw_the_object() -> None:
    hub = Hub()
    watcher, other = hub.join(fields("spec.nodeName=n1")), hub.join(fields("spec.nodeName=n2"))
    publish(hub, pod("a", node="n1", rv=2), pod("a", node="n1"), deleted=True)
    assert names(watcher) == [("DELETED", "a")]
    assert names(other) == []


def test_the_log_tells_the_same_story_as_the_live_change() -> None:
    old, new = pod("a", node="n1"), pod("a", node="n2", rv=2)
    interest = fields("spec.nodeName=n1")
    live = Transition(change(new, old), new, old).seen_by(interest.matches)
    replayed = Transition(change(new, old), None, None).seen_by(interest.matches)
    assert live is not None
    assert replayed is not None
    assert (live.type, live.value) == (replayed.type, replayed.value) == ("DELETED", live.value)


def test_an_event_is_shared_by_all_who_see_it() -> None:
    hub = Hub()
    watchers = [hub.join(Interest(PODS)) for _ in range(3)]
    publish(hub, pod("a"))
    events: set[Event] = {watcher.pending()[0] for watcher in watchers}
    assert len(events) == 1


async def test_a_watcher_that_does_not_keep_up_is_closed() -> None:
    hub = Hub(limit=2)
    watcher = hub.join(Interest(PODS))
    for rv in range(1, 4):
        publish(hub, pod("a", rv=rv))
    assert watcher.closed
    await watcher.next()
    assert await watcher.next() == []


async def test_closing_a_resource_ends_its_watches_only() -> None:
    hub = Hub()
    pods, nodes = hub.join(Interest(PODS)), hub.join(Interest("nodes"))
    hub.close(PODS)
    assert (pods.closed, nodes.closed) == (True, False)
    assert await pods.next() == []


def test_who_left_is_forgotten() -> None:
    hub = Hub()
    watchers = [
        hub.join(fields("spec.nodeName=n1")),
        hub.join(Interest(PODS, "ns")),
        hub.join(Interest(PODS)),
    ]
    for watcher in watchers:
        hub.leave(watcher)
    assert len(hub) == 0
    publish(hub, pod("a", node="n1"))
    assert [watcher.pending() for watcher in watchers] == [[], [], []]
