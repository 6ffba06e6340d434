"""What is wrong with a field, in the words of kube-apiserver: clients and people match on them.

The validation modules call these; `status.invalid` puts the causes into a Status. A `Path` is a chain of
(parent, segment), so that walking a valid object builds no strings; a segment is a field's name, an index, or
a `Key` of a map.
"""

import json
from typing import Any, NamedTuple

from subnetes.apiserver.status import Cause


class Key(NamedTuple):
    """A map's key, written in brackets: rules write it so, the schema's own checks do not."""

    name: str


Path = tuple[Any, str | int | Key] | None
_NOWHERE = "<nil>"  # the API server's name for the whole object
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def render(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, segment = path
        if isinstance(segment, str):
            parts.append(f".{segment}")
        else:
            parts.append(f"[{segment.name if isinstance(segment, Key) else segment}]")
    return "".join(reversed(parts)).removeprefix(".")


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value as Go prints it: whole numbers without a point, maps sorted, HTML escaped inside JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def cause(reason: str, path: Path, words: str, detail: str = "") -> Cause:
    return Cause(reason, render(path) or _NOWHERE, f"{words}: {detail}" if detail else words)


def invalid(path: Path, value: Any, detail: str) -> Cause:
    return cause("FieldValueInvalid", path, f"Invalid value: {shown(value)}", detail)


def type_invalid(path: Path, value: Any, detail: str) -> Cause:
    return cause("FieldValueTypeInvalid", path, f"Invalid value: {shown(value)}", detail)


def required(path: Path, detail: str = "") -> Cause:
    return cause("FieldValueRequired", path, "Required value", detail)


def forbidden(path: Path, detail: str) -> Cause:
    return cause("FieldValueForbidden", path, "Forbidden", detail)


def duplicate(path: Path, value: Any) -> Cause:
    return cause("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")


def unsupported(path: Path, value: Any, supported: list[Any]) -> Cause:
    names = ", ".join(quoted(item if isinstance(item, str) else json.dumps(item)) for item in supported)
    words = f"Unsupported value: {shown(value)}"
    return cause("FieldValueNotSupported", path, words, f"supported values: {names}")


def too_long(path: Path, most: int) -> Cause:
    detail = f"may not be more than {most} {'byte' if most == 1 else 'bytes'}"
    return cause("FieldValueTooLong", path, "Too long", detail)


def too_many(path: Path, count: int, most: int) -> Cause:
    detail = f"must have at most {most} {'item' if most == 1 else 'items'}"
    return cause("FieldValueTooMany", path, f"Too many: {count}", detail)


def unchecked_rules() -> Cause:
    """Rules see only objects of the right shape; this says that they were not asked."""
    return invalid(None, None, _UNCHECKED)
