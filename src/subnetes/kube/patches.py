"""The three ways to patch an object, each with its media type and its query.

Callers make one and hand it to `Client.patch`:

- `MergePatch({"status": {...}})` or `MergePatch(struct)`: RFC 7386, null deletes, lists are replaced;
- `JsonPatch([{"op": "test", ...}, ...])`: RFC 6902, for what must be conditional;
- `Apply(obj, force=True)`: server-side apply, where the field manager owns what it sends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from subnetes.api.meta import Object
from subnetes.api.model import encode
from subnetes.kube.urls import query

Document = Mapping[str, Any] | msgspec.Struct


@lru_cache(64)
def manager_query(field_manager: str, force: bool = False) -> str:
    return query({"fieldManager": field_manager, "force": "true" if force else ""})


@dataclass(frozen=True, slots=True)
class MergePatch:
    document: Document
    media_type: ClassVar[str] = "application/merge-patch+json"

    def body(self) -> bytes:
        return encode_document(self.document)

    def query(self, field_manager: str) -> str:
        return manager_query(field_manager)


@dataclass(frozen=True, slots=True)
class JsonPatch:
    operations: Sequence[Mapping[str, Any]]
    media_type: ClassVar[str] = "application/json-patch+json"

    def body(self) -> bytes:
        return msgspec.json.encode(self.operations)

    def query(self, field_manager: str) -> str:
        return manager_query(field_manager)


@dataclass(frozen=True, slots=True)
class Apply:
    """`force` takes over fields that another manager owns; without it that is a Conflict."""

    document: Mapping[str, Any] | Object
    force: bool = False
    field_manager: str | None = None
    media_type: ClassVar[str] = "application/apply-patch+yaml"  # JSON is YAML

    def body(self) -> bytes:
        return encode_document(self.document)

    def query(self, field_manager: str) -> str:
        return manager_query(self.field_manager or field_manager, self.force)


Patch = MergePatch | JsonPatch | Apply


def encode_document(document: Document) -> bytes:
    return encode(document) if isinstance(document, msgspec.Struct) else msgspec.json.encode(document)
