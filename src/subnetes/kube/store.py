"""The local copy of a collection, with indexes: what an informer keeps and reconcilers read.

Pure and synchronous. Objects are shared, not copied: a reader that wants to change one makes its own copy.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from subnetes.kube.key import Key, key_of

T = TypeVar("T")
IndexFunction = Callable[[T], Iterable[Hashable]]


class Store(Generic[T]):
    """Objects by key and, for every named index, by the values that its function gives them.

    Every lookup is one dictionary access, whatever the number of objects.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._functions = dict(indexes or {})
        self._buckets: dict[str, dict[Hashable, dict[Key, T]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        """The objects at this moment: the caller may await between two of them."""
        return iter(list(self._objects.values()))

    def keys(self) -> list[Key]:
        return list(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def by(self, index: str, value: Hashable) -> list[T]:
        """The objects to which the index gives this value."""
        return list(self._buckets[index].get(value, {}).values())

    def values_of(self, index: str) -> list[Hashable]:
        """Every value that some object has in the index."""
        return list(self._buckets[index])

    def put(self, obj: T) -> T | None:
        """Add or replace; the answer is what was there before."""
        key = key_of(obj)
        values = {name: set(function(obj)) for name, function in self._functions.items()}
        old = self.remove(key)
        self._objects[key] = obj
        for name, found in values.items():
            for value in found:
                self._buckets[name].setdefault(value, {})[key] = obj
        return old

    def remove(self, key: Key) -> T | None:
        old = self._objects.pop(key, None)
        if old is not None:
            for name, function in self._functions.items():
                for value in set(function(old)):
                    self._leave(name, value, key)
        return old

    def _leave(self, index: str, value: Hashable, key: Key) -> None:
        buckets = self._buckets[index]
        bucket = buckets.get(value, {})
        bucket.pop(key, None)
        if not bucket:
            buckets.pop(value, None)
