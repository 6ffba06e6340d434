"""How a kind's objects, lists and watch frames are read from bytes: typed, or as plain dictionaries.

Pure; the client asks `codec_of(kind)` for one `Codec` a kind. The common case is a single msgspec pass over
the bytes: lists and watch frames are generic structs around the kind. Only bytes that do not fit are
looked at part by part: an object has fields that our version does not know, or the frame holds a Status.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import GenericAlias
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from subnetes.api.meta import Object, ObjectMeta, ObjectMetaView, Status
from subnetes.api.model import View, decode
from subnetes.api.resource import Resource
from subnetes.kube.errors import Unavailable, Undecodable, error_of_status

Untyped = dict[str, Any]
T = TypeVar("T")  # an object of any kind, typed or not
V = TypeVar("V")

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One page, or all of them: what there was at `resource_version`, from where a watch can go on."""

    items: list[T]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    type: ChangeType
    object: T
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing changed up to here: a watch may resume from `resource_version`."""

    resource_version: str
    type: Literal["BOOKMARK"] = "BOOKMARK"


WatchEvent = Change[T] | Bookmark


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None  # Go writes an empty list as null


class _Frame(msgspec.Struct, Generic[T]):
    type: str
    object: T


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Head(msgspec.Struct):
    """The one thing that every object has and that a watch must know of it."""

    metadata: _Version = msgspec.field(default_factory=_Version)


_RAW_LIST = msgspec.json.Decoder(_List[msgspec.Raw])
_RAW_FRAME = msgspec.json.Decoder(_Frame[msgspec.Raw])
_HEAD_FRAME = msgspec.json.Decoder(_Frame[_Head])
_ANYTHING = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    resource: Resource
    one: Callable[[bytes | msgspec.Raw], T]
    whole_list: msgspec.json.Decoder[_List[T]]
    whole_frame: msgspec.json.Decoder[_Frame[T]]
    finish: Callable[[T], T]
    version: Callable[[T], str | None]

    def object(self, data: bytes) -> T:
        return _reading(self._object, data)

    def listing(self, data: bytes) -> Listing[T]:
        with _collector_paused():
            return _reading(self._listing, data)

    def event(self, line: bytes) -> WatchEvent[T]:
        """A frame of a watch; an ERROR frame raises the error that its Status says."""
        return _reading(self._event, line)

    def _object(self, data: bytes) -> T:
        return self.finish(self.one(data))

    def _listing(self, data: bytes) -> Listing[T]:
        try:
            found = self.whole_list.decode(data)
            items, metadata = found.items or [], found.metadata
        except msgspec.ValidationError:
            parts = _RAW_LIST.decode(data)
            items, metadata = [self.one(item) for item in parts.items or []], parts.metadata
        return Listing([self.finish(i) for i in items], metadata.resource_version, metadata.continue_token)

    def _event(self, line: bytes) -> WatchEvent[T]:
        try:
            frame = self.whole_frame.decode(line)
        except msgspec.ValidationError:
            return self._unusual_event(line)
        if frame.type not in ("ADDED", "MODIFIED", "DELETED"):
            return self._unusual_event(line)
        version = self.version(frame.object) or _HEAD_FRAME.decode(line).object.metadata.resource_version
        return Change(cast("ChangeType", frame.type), self.finish(frame.object), version)

    def _unusual_event(self, line: bytes) -> WatchEvent[T]:
        frame = _RAW_FRAME.decode(line)
        if frame.type == "ERROR":
            raise error_of_status(decode(Status, bytes(frame.object)))
        version = _HEAD_FRAME.decode(line).object.metadata.resource_version
        if frame.type == "BOOKMARK":
            return Bookmark(version)
        if frame.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise Undecodable(f"a watch sent an event of type {frame.type!r}")
        return Change(cast("ChangeType", frame.type), self.finish(self.one(frame.object)), version)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A page is tens of thousands of new objects, none of them garbage: looking for some doubles its cost."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _reading(read: Callable[[bytes], V], data: bytes) -> V:
    try:
        return read(data)
    except msgspec.ValidationError as problem:
        raise Undecodable(f"the answer does not fit the kind: {problem}") from problem
    except msgspec.DecodeError as problem:
        # What does not even parse was cut short or comes from something between us and the API server.
        raise Unavailable(f"the answer is not JSON: {problem}") from problem


def codec_of(kind: Any) -> Codec[Any]:
    """The codec of a typed kind, or of a Resource for plain dictionaries."""
    return _codec(kind)


@cache
def _codec(kind: Any) -> Codec[Any]:
    return _untyped(kind) if isinstance(kind, Resource) else _typed(kind)


def _typed(kind: type[Object] | type[View]) -> Codec[Any]:
    def version(obj: Any) -> str | None:
        metadata = getattr(obj, "metadata", None)  # a View need not have any
        return metadata.resource_version if isinstance(metadata, ObjectMeta | ObjectMetaView) else None

    decoder = msgspec.json.Decoder(kind)

    def one(data: bytes | msgspec.Raw) -> Any:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            return decode(kind, bytes(data))

    return Codec(kind.resource, one, _decoder(_List, kind), _decoder(_Frame, kind), _as_it_is, version)


def _untyped(resource: Resource) -> Codec[Untyped]:
    def finish(obj: Untyped) -> Untyped:
        # The items of a list of built-in kinds come without these two.
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        return obj

    def version(obj: Untyped) -> str | None:
        found: str | None = obj.get("metadata", {}).get("resourceVersion")
        return found

    lists, frames = _decoder(_List, Untyped), _decoder(_Frame, Untyped)
    return Codec(resource, msgspec.json.Decoder(Untyped).decode, lists, frames, finish, version)


def _decoder(around: type, kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(GenericAlias(around, (kind,)))


def _as_it_is(obj: T) -> T:
    return obj
