"""The store against a plain-Python model: writes, reads of the past, compaction, reopening, in any order."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from subnetes.apiserver.store import Busy, Change, Exists, Expired, Missing, Row, Stale, Store

pytestmark = pytest.mark.slow

RESOURCES = st.sampled_from(["pods", "nodes"])
# `a-b/` sorts before `a/`, which a comparison of namespace and name, one by one, would get wrong.
KEYS = st.sampled_from(["a/x", "a/y", "a-b/x", "b/x", "b/xy", "lone"])
SPANS = st.sampled_from(["", "a/", "a-b/", "b/", "c/", "b/x", "lone"])  # everything, namespaces, one key
NUMBERS = st.integers(0, 3)
FIELDS = {"pods": "n"}  # nodes are not filed


class Model:
    """Every state that ever was, in full."""

    def __init__(self) -> None:
        self.states: list[dict[tuple[str, str], bytes]] = [{}]
        self.changes: list[Change] = []
        self.compacted = 0

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    @property
    def now(self) -> dict[tuple[str, str], bytes]:
        return self.states[-1]

    def write(self, resource: str, key: str, value: bytes, *, deleted: bool) -> None:
        before = self.now.get((resource, key))
        state = {at: each for at, each in self.now.items() if at != (resource, key)}
        if not deleted:
            state[resource, key] = value
        self.states.append(state)
        self.changes.append(Change(self.revision, resource, key, value, deleted, before))

    def listed(self, resource: str, span: str, at: int) -> list[tuple[str, bytes]]:
        state = self.states[at]
        return sorted((key, v) for (res, key), v in state.items() if res == resource and within(key, span))


def within(key: str, span: str) -> bool:
    return key == span if span and not span.endswith("/") else key.startswith(span)


def value(rv: int, number: int) -> bytes:
    return orjson.dumps({"metadata": {"resourceVersion": str(rv)}, "n": number})


def has(value: bytes, number: int) -> bool:
    return bool(orjson.loads(value)["n"] == number)


def content(number: int) -> dict[str, Any]:
    return {"metadata": {}, "n": number}


class StoreAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="subnetes-store-"))
        self.store = Store(self.folder, FIELDS)
        self.model = Model()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(resource=RESOURCES, key=KEYS, number=NUMBERS)
    def create(self, resource: str, key: str, number: int) -> None:
        if (resource, key) in self.model.now:
            with pytest.raises(Exists):
                self.store.create(resource, key, content(number))
            return
        row = self.store.create(resource, key, content(number))
        self._written(resource, row, number, deleted=False)

    @rule(resource=RESOURCES, key=KEYS, number=NUMBERS, behind=st.integers(0, 2), deleted=st.booleans())
    def update_or_delete(self, resource: str, key: str, number: int, behind: int, deleted: bool) -> None:
        operation = self.store.delete if deleted else self.store.update
        current = self.model.now.get((resource, key))
        if current is None:
            with pytest.raises(Missing):
                operation(resource, key, content(number), 1)
            return
        expected = int(orjson.loads(current)["metadata"]["resourceVersion"]) - behind
        if behind:
            with pytest.raises(Stale):
                operation(resource, key, content(number), expected)
            return
        self._written(resource, operation(resource, key, content(number), expected), number, deleted=deleted)

    def _written(self, resource: str, row: Row, number: int, *, deleted: bool) -> None:
        rv = self.model.revision + 1
        assert (row.rv, row.value) == (rv, value(rv, number))
        self.model.write(resource, row.key, row.value, deleted=deleted)

    @rule(resource=RESOURCES, span=SPANS, back=st.integers(0, 12), limit=st.none() | st.integers(1, 3))
    def list_in_pages(self, resource: str, span: str, back: int, limit: int | None) -> None:
        at = max(0, self.model.revision - back)
        if at < self.model.compacted:
            with pytest.raises(Expired):
                self.store.scan(resource, span, at=at)
            return
        expected = self.model.listed(resource, span, at)
        seen: list[tuple[str, bytes]] = []
        after = ""
        while True:
            page = self.store.scan(resource, span, at=at, after=after, limit=limit)
            seen += [(row.key, row.value) for row in page.rows]
            assert page.revision == at
            assert page.remaining == len(expected) - len(seen)
            if not page.remaining:
                break
            after = page.rows[-1].key
        assert seen == expected

    @rule(resource=RESOURCES, span=SPANS, back=st.integers(0, 12))
    def resume_a_watch(self, resource: str, span: str, back: int) -> None:
        since = max(0, self.model.revision - back)
        if since < self.model.compacted:
            with pytest.raises(Expired):
                self.store.changes(since, resource, span)
            return
        expected = [
            change
            for change in self.model.changes
            if change.rv > since and change.resource == resource and within(change.key, span)
        ]
        assert self.store.changes(since, resource, span) == expected

    @rule(span=SPANS, back=st.integers(0, 12), number=NUMBERS)
    def list_under_a_value(self, span: str, back: int, number: int) -> None:
        at = max(self.model.compacted, self.model.revision - back)
        found = [(row.key, row.value) for row in self.store.scan("pods", span, under=str(number), at=at).rows]
        everything = self.model.listed("pods", span, at)
        assert set(found) <= set(everything)
        assert [each for each in found if has(each[1], number)] == [
            each for each in everything if has(each[1], number)
        ]

    @rule(span=SPANS, back=st.integers(0, 12), number=NUMBERS)
    def resume_a_watch_of_a_value(self, span: str, back: int, number: int) -> None:
        since = max(self.model.compacted, self.model.revision - back)
        expected = [
            change
            for change in self.model.changes
            if change.rv > since and change.resource == "pods" and within(change.key, span)
            if has(change.value, number) or (change.before and has(change.before, number))
        ]
        assert self.store.changes(since, "pods", span, under=str(number)) == expected

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        rv = max(0, self.model.revision - back)
        self.store.compact(rv)
        self.model.compacted = max(self.model.compacted, rv)

    @rule(forgets=st.booleans())
    def reopen(self, forgets: bool) -> None:
        """Perhaps after a release that filed nothing."""
        if forgets:
            self.store._db.execute("DELETE FROM filed WHERE rv % 2")
        self.store.close()
        self.store = Store(self.folder, FIELDS)

    @precondition(lambda self: self.model.revision > 0)
    @rule()
    def a_second_process_is_kept_out(self) -> None:
        with pytest.raises(Busy, match=r"another process \(pid \d+\) uses"):
            Store(self.folder, FIELDS)

    @invariant()
    def the_present_agrees(self) -> None:
        assert self.store.revision == self.model.revision
        assert self.store.compacted == self.model.compacted
        for resource, key in {*self.model.now, ("pods", "a/x")}:
            row = self.store.get(resource, key)
            assert (row.value if row else None) == self.model.now.get((resource, key))
        assert sorted(self.store.resources()) == sorted({resource for resource, _ in self.model.now})

    @invariant()
    def only_what_can_be_asked_for_is_kept(self) -> None:
        """After compaction: the state at that revision, and every change since."""
        kept = self.store._db.execute("SELECT count(*) FROM log").fetchone()[0]
        since = [change for change in self.model.changes if change.rv > self.model.compacted]
        assert kept == len(self.model.states[self.model.compacted]) + len(since)
        filed = "SELECT count(*) FROM filed WHERE rv NOT IN (SELECT rv FROM log)"
        assert self.store._db.execute(filed).fetchone()[0] == 0


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(None)
    yield opened
    opened.close()


def test_a_store_in_memory_needs_no_folder(store: Store) -> None:
    store.create("pods", "a/x", content(1))
    assert [row.key for row in store.scan("pods").rows] == ["a/x"]


def test_a_refused_write_leaves_the_revision_alone(store: Store) -> None:
    store.create("pods", "a/x", content(1))
    with pytest.raises(Exists):
        store.create("pods", "a/x", content(2))
    with pytest.raises(TypeError):
        store.create("pods", "a/y", {"metadata": {}, "n": object()})
    assert store.revision == 1
    assert store.create("pods", "a/y", content(3)).rv == 2


def test_the_history_of_one_resource_says_nothing_of_another(store: Store) -> None:
    store.create("pods", "a/x", content(1))
    store.create("nodes", "n", content(1))
    assert [change.key for change in store.changes(0, "nodes")] == ["n"]


def on(node: str) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"nodeName": node}}


def test_a_watch_of_a_value_sees_what_leaves_it() -> None:
    store = Store(None, {"pods": "spec.nodeName"})
    old = store.create("pods", "ns/a", on("old"))
    new = store.update("pods", "ns/a", on("new"), old.rv)
    for node in ("old", "new"):
        assert [change.rv for change in store.changes(old.rv, "pods", under=node)] == [new.rv]
    store.close()


def steps(store: Store, question: Callable[[], object]) -> int:
    """What SQLite does for an answer, in instructions of its machine: each row read costs some."""
    taken = itertools.count()
    store._db.set_progress_handler(lambda: 0 if next(taken) >= 0 else 1, 1)
    question()
    store._db.set_progress_handler(None, 1)
    return next(taken)


def test_what_is_asked_of_one_node_costs_the_same_whatever_is_on_the_others() -> None:
    store = Store(None, {"pods": "spec.nodeName"})
    first = [store.create("pods", f"ns/mine-{i}", on("mine")) for i in range(5)][-1].rv
    store.create("pods", "ns/mine-5", on("mine"))
    questions: dict[str, Callable[[], list[Any]]] = {
        "now": lambda: store.scan("pods", under="mine").rows,
        "in a namespace": lambda: store.scan("pods", "ns/", under="mine").rows,
        "then": lambda: store.scan("pods", under="mine", at=first).rows,
        "since": lambda: store.changes(first, "pods", under="mine"),
        "one key": lambda: store.changes(first, "pods", "ns/mine-5"),
    }
    alone: dict[str, int] = {}
    for others in (100, 2000):
        for i in range(others):
            store.create("pods", f"ns/{others}-{i}", on(f"node-{i % 50}"))
        for name, question in questions.items():
            assert steps(store, question) == alone.setdefault(name, steps(store, question)), name
            assert len(question()) == {"now": 6, "in a namespace": 6, "then": 5}.get(name, 1)
    store.close()
