"""What a CRD version's OpenAPI schema does to its objects: prune, default, validate.

`definitions.endpoints` compiles a `Schema` when a CRD is established; `admission` calls it on every write.
What is left out here is never left out silently: `Schema.unenforced` names it.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from subnetes.apiserver import causes
from subnetes.apiserver.causes import Key, Path, render
from subnetes.apiserver.rules import compile_rules
from subnetes.apiserver.status import Cause
from subnetes.apiserver.values import compile_check

Json = dict[str, Any]

_OPEN = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_LEFT_OUT = "allOf anyOf oneOf not multipleOf uniqueItems minProperties"
_BLOCKING = frozenset(
    f"FieldValue{reason}" for reason in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)


class Schema:
    """A schema, compiled. `unenforced`: what of it only a real Kubernetes enforces."""

    def __init__(self, openapi: Json) -> None:
        self.unenforced: list[str] = []
        declared = openapi.get("properties", {})
        always: Json = {"apiVersion": {}, "kind": {}}
        properties = declared | always | {"metadata": declared.get("metadata", {}) | {_OPEN: True}}
        self._root = _Place(openapi | {"properties": properties}, self.unenforced)

    def prune(self, obj: Json) -> list[str]:
        """Drop, in place, what the schema does not know; answers the paths of what was dropped."""
        dropped: list[str] = []
        self._root.prune(obj, None, dropped)
        return sorted(dropped)

    def default(self, obj: Json) -> None:
        """Fill in, in place, what is absent or null and has a default."""
        self._root.default(obj)

    def validate(self, obj: Json, old: Json | None = None, known: Sequence[Cause] = ()) -> list[Cause]:
        """What is wrong with an object, or with its change from `old`, beside what is known to be."""
        found = [*known]
        self._root.check(obj, None, found)
        if self._root.ruled and any(cause.reason in _BLOCKING for cause in found):
            found.append(causes.unchecked_rules())
        elif self._root.ruled:
            self._root.apply_rules(obj, None, old, found)
        return found


class _Place:
    """One place of the schema, with the places below it."""

    def __init__(self, schema: Json, unenforced: list[str], *, in_list: bool = False) -> None:
        extra, items = schema.get("additionalProperties"), schema.get("items")
        self._properties = {
            name: _Place(each, unenforced, in_list=in_list)
            for name, each in schema.get("properties", {}).items()
        }
        self._additional = _Place(extra, unenforced, in_list=in_list) if isinstance(extra, dict) else None
        self._items = _Place(items, unenforced, in_list=True) if isinstance(items, dict) else None
        self._check, self._trivial = compile_check(schema, unenforced)
        self._rules = compile_rules(schema, unenforced, in_list=in_list)
        self._default, self._nullable = schema.get("default"), schema.get("nullable", False)
        self._defaulted = [(n, each) for n, each in self._properties.items() if each._default is not None]
        unenforced += [
            f"{word}: {schema[word]}" for word in (*_LEFT_OUT.split(), _EMBEDDED) if schema.get(word)
        ]
        if self._items is not None and self._items._default is not None:
            unenforced.append(f"default of null items: {self._items._default}")

        below = [each for each in (*self._properties.values(), self._additional, self._items) if each]
        free = schema.get(_OPEN) or schema.get(_EMBEDDED) or isinstance(extra, dict) or extra
        self._closed = schema.get("type") == "object" and not free
        self._prunes: bool = self._closed or any(each._prunes for each in below)
        self.ruled: bool = bool(self._rules) or any(each.ruled for each in below)
        self._parent = bool(below)

    def _below(self, value: Any) -> Iterator[tuple[str | int, Any, "_Place"]]:
        if isinstance(value, dict):
            for name, item in value.items():
                place = self._properties.get(name, self._additional)
                if place is not None:
                    yield name, item, place
        elif isinstance(value, list) and self._items is not None:
            for index, item in enumerate(value):
                yield index, item, self._items

    def prune(self, value: Any, path: Path, dropped: list[str]) -> None:
        if self._closed and isinstance(value, dict):
            for name in [name for name in value if name not in self._properties]:
                del value[name]
                dropped.append(render((path, name)))
        for segment, item, place in self._below(value):
            if place._prunes:
                place.prune(item, (path, segment), dropped)

    def default(self, value: Any) -> None:
        if isinstance(value, dict):
            for name, place in self._defaulted:
                if name not in value:
                    value[name] = copy.deepcopy(place._default)
            if None in value.values():
                self._settle_nulls(value)
        for _, item, place in self._below(value):
            if place._parent:
                place.default(item)

    def _settle_nulls(self, value: Json) -> None:
        """A null where none is allowed becomes the default, or nothing at all."""
        for name in [name for name, item in value.items() if item is None]:
            place = self._properties.get(name, self._additional)
            if place is None or place._nullable:
                continue
            if place._default is None:
                del value[name]
            else:
                value[name] = copy.deepcopy(place._default)

    def check(self, value: Any, path: Path, out: list[Cause]) -> None:
        self._check(value, path, out)
        for segment, item, place in self._below(value):
            if type(item) not in place._trivial:
                place.check(item, (path, segment), out)

    def apply_rules(self, value: Any, path: Path, old: Any, out: list[Cause]) -> None:
        if value is None:
            return
        for rule in self._rules:
            rule.apply(value, path, old, out)
        for segment, item, place in self._below(value):
            if place.ruled:
                before = old.get(segment) if isinstance(old, dict) else None
                named = segment in self._properties or isinstance(segment, int)
                place.apply_rules(item, (path, segment if named else Key(str(segment))), before, out)
