"""How a Kubernetes object becomes a typed value and goes back without losing anything.

Everything in `api/` that crosses the wire is a `Model` or a `View`:

- A `Model` is the whole of what it describes. Fields that a newer or foreign writer added are set aside in
  `unknown` and written back in place, so a read-modify-write loses nothing.
- A `View` is a read-only window on a kind that others own (Pod, Node): it names the few fields that we read
  and ignores the rest at full decoding speed. The client refuses to write one.

A field that may be absent is `X | None = None`, so that absent and empty ([], {}, 0, false) stay two things;
a string that may be absent is "", as in the Go types that these kinds come from. A null is read as absence.

`decode` and `encode` are the two doors. The common case (no unknown field) is one msgspec pass each way; only
an object that really has unknown fields pays for the detour through plain dictionaries.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.inspect import DictType, ListType, Metadata, StructType, Type, UnionType, type_info

from subnetes.api.declaration import Rule
from subnetes.api.resource import Resource

UNKNOWN = "<unknown>"  # no field of a Kubernetes object is called so
_UNKNOWN_ENCODED = b'"<unknown>":'
_ACRONYMS = {"id": "ID", "ip": "IP", "ips": "IPs", "cidr": "CIDR"}


def wire_name(attribute: str) -> str:
    """`requested_ip_count` → `requestedIPCount`: Go's spelling of our attribute names."""
    first, *rest = attribute.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


class Model(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename=wire_name):
    """A value that we may write: unknown fields are kept."""

    rules: ClassVar[tuple[Rule, ...]] = ()

    unknown: dict[str, Any] = msgspec.field(name=UNKNOWN, default_factory=dict)


class View(msgspec.Struct, kw_only=True, omit_defaults=True, rename=wire_name):
    """A window on somebody else's kind: unknown fields are not even looked at."""

    resource: ClassVar[Resource]


M = TypeVar("M", bound=msgspec.Struct)


def decode(kind: type[M], data: bytes) -> M:
    """The value of `kind` in this JSON; raises msgspec.ValidationError or DecodeError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return from_builtins(kind, msgspec.json.decode(data))


def encode(value: msgspec.Struct) -> bytes:
    data = msgspec.json.encode(value)
    if _UNKNOWN_ENCODED not in data:
        return data
    return msgspec.json.encode(to_builtins(value))


def from_builtins(kind: type[M], value: Any) -> M:
    """The typed value of plain dictionaries and lists."""
    return msgspec.convert(_aside(kind)(value), kind)


def to_builtins(value: msgspec.Struct) -> dict[str, Any]:
    """Plain dictionaries and lists as they go over the wire."""
    plain: dict[str, Any] = _merge(msgspec.to_builtins(value))
    return plain


def _merge(value: Any) -> Any:
    if isinstance(value, dict):
        unknown = value.pop(UNKNOWN, {})
        return {**{key: _merge(item) for key, item in value.items()}, **unknown}
    if isinstance(value, list):
        return [_merge(item) for item in value]
    return value


Walk = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


@cache
def _aside(kind: Any) -> Walk:
    """A function that moves the unknown fields of a plain value of this type under UNKNOWN."""
    return _walk(type_info(kind))


def _walk(info: Type) -> Walk:
    if isinstance(info, Metadata):
        return _walk(info.type)
    if isinstance(info, StructType):
        return _struct_walk(info)
    if isinstance(info, ListType):
        each = _walk(info.item_type)
        return _same if each is _same else lambda v: [each(i) for i in v] if isinstance(v, list) else v
    if isinstance(info, DictType):
        each = _walk(info.value_type)
        return (
            _same
            if each is _same
            else lambda v: {k: each(i) for k, i in v.items()} if isinstance(v, dict) else v
        )
    if isinstance(info, UnionType):
        walks = [w for w in map(_walk, info.types) if w is not _same]
        return walks[0] if walks else _same
    return _same


def _struct_walk(info: StructType) -> Walk:
    keeps_unknown = issubclass(info.cls, Model)
    fields = {f.encode_name: _walk(f.type) for f in info.fields if f.encode_name != UNKNOWN}

    def walk(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {key: fields[key](item) for key, item in value.items() if key in fields}
        unknown = {key: item for key, item in value.items() if key not in fields}
        return {**known, UNKNOWN: unknown} if unknown and keeps_unknown else known

    return walk
