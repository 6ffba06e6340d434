"""What one CRD schema keeps of an object and another takes away, as API servers prune. Pure.

Paths are written as `status.networkContainers[].id`; a `*` is whatever name a map has, or an unknown field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_EVERYWHERE = frozenset({"apiVersion", "kind", "metadata"})  # of every object, whatever its schema says


def version_schema(crd: Mapping[str, Any], version: str) -> Schema:
    """The schema of one version of a CRD; without one, nothing but the metadata is kept."""
    found: Mapping[str, Any] = next((each for each in crd["spec"]["versions"] if each["name"] == version), {})
    schema: Schema = (found.get("schema") or {}).get("openAPIV3Schema") or {}
    return {**schema, _PRESERVE: True} if crd["spec"].get("preserveUnknownFields") else schema


def lost(present: Schema, wanted: Schema, path: str = "") -> Iterator[str]:
    """The paths that `present` has and `wanted` has not; none below one that is lost."""
    for name, schema in (present.get("properties") or {}).items():
        if not _is_object(present, path) or name not in _EVERYWHERE:
            yield from _lost_below(schema, wanted, name, _joined(path, name))
    rest = _rest(present)
    if rest is not None:
        yield from _lost_below(rest, wanted, None, _joined(path, "*"))
    if present.get("items") is not None:
        yield from lost(present["items"], wanted.get("items") or _inherited(wanted), f"{path}[]")


def _lost_below(schema: Schema, wanted: Schema, name: str | None, path: str) -> Iterator[str]:
    kept = _kept(wanted, name)
    if kept is None:
        yield path
    else:
        yield from lost(schema, kept, path)


def pruned(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """The paths that an API server takes away from the object."""
    if isinstance(value, dict):
        for name, each in value.items():
            if _is_object(schema, path) and name in _EVERYWHERE:
                continue
            kept = _kept(schema, name)
            if kept is None:
                yield _joined(path, name)
            else:
                yield from pruned(each, kept, _joined(path, name))
    elif isinstance(value, list):
        for each in value:
            yield from pruned(each, schema.get("items") or _inherited(schema), f"{path}[]")


def _kept(schema: Schema, name: str | None) -> Schema | None:
    """What becomes of a field of this name, or of any name; None: it goes."""
    found: Schema | None = (schema.get("properties") or {}).get(name)
    return found if found is not None else _rest(schema)


def _rest(schema: Schema) -> Schema | None:
    """What becomes of the names that the schema does not say."""
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        return more
    return {_PRESERVE: True} if more is True or schema.get(_PRESERVE) else None


def _inherited(schema: Schema) -> Schema:
    return {_PRESERVE: True} if schema.get(_PRESERVE) else {}


def _is_object(schema: Schema, path: str) -> bool:
    return not path or bool(schema.get(_EMBEDDED))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
