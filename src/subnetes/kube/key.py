"""What an object is called: reconcilers are given it, stores and queues are keyed by it."""

from typing import Any, NamedTuple


class Key(NamedTuple):
    """An object's place among its kind; the namespace of a cluster-wide kind is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Any) -> Key:
    """The key of a typed object, a view with metadata, or a plain dictionary."""
    if isinstance(obj, dict):
        metadata = obj["metadata"]
        return Key(metadata.get("namespace") or "", metadata["name"])
    return Key(obj.metadata.namespace or "", obj.metadata.name)
