"""The informer's store: what is in it is found by key and by every index, and nothing else is."""

import pytest

from subnetes.kube.key import Key, key_of
from subnetes.kube.store import Store
from tests.harness.collection import Thing, thing


def store() -> Store[Thing]:
    return Store(
        {"node": lambda obj: [obj["node"]] if "node" in obj else [], "tag": lambda obj: obj.get("tags", [])}
    )


def test_an_object_is_found_by_its_key_and_its_index_values() -> None:
    things = store()
    a, b = thing("a", 1, node="n1", tags=["x", "y"]), thing("b", 2, node="n1")
    assert things.put(a) is None
    assert things.put(b) is None
    assert things.get(Key("default", "a")) is a
    assert things.by("node", "n1") == [a, b]
    assert things.by("tag", "y") == [a]
    assert things.by("tag", "z") == []


def test_a_changed_object_leaves_the_index_values_that_it_no_longer_has() -> None:
    things = store()
    old, new = thing("a", 1, node="n1", tags=["x", "x"]), thing("a", 2, node="n2")
    things.put(old)
    assert things.put(new) is old
    assert things.by("node", "n1") == []
    assert things.by("node", "n2") == [new]
    assert things.values_of("tag") == []
    assert len(things) == 1


def test_a_removed_object_is_nowhere() -> None:
    things = store()
    a = thing("a", 1, node="n1")
    things.put(a)
    assert things.remove(key_of(a)) is a
    assert things.remove(key_of(a)) is None
    assert key_of(a) not in things
    assert things.by("node", "n1") == []
    assert things.values_of("node") == []


def test_an_unknown_index_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        store().by("nowhere", "n1")


def test_an_index_function_that_fails_leaves_the_store_as_it_was() -> None:
    things: Store[Thing] = Store({"node": lambda obj: [obj["node"]]})
    good = thing("a", 1, node="n1")
    things.put(good)
    with pytest.raises(KeyError):
        things.put(thing("a", 2))
    assert things.by("node", "n1") == [good]


def test_keys_read_as_people_write_them() -> None:
    assert str(key_of(thing("a", 1))) == "default/a"
    assert str(key_of({"metadata": {"name": "node-1"}})) == "node-1"
