"""What the server serves: one value per (resource, version), made from a CRD or from the built-in table."""

from dataclasses import dataclass, field
from typing import Any

from subnetes.api.resource import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column, as CRDs declare them."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Served:
    """One version of one resource at its endpoint."""

    resource: Resource
    singular: str
    list_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status_subresource: bool = False
    storage_version: str = ""
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    filed_by: str = ""  # the one of these by which the store finds objects without looking at the others
    openapi: dict[str, Any] | None = field(default=None, compare=False)  # None: a core kind, not validated

    @property
    def key(self) -> str:
        """What the store calls the resource: the same for all its versions, as kubectl writes it."""
        return (
            f"{self.resource.plural}.{self.resource.group}" if self.resource.group else self.resource.plural
        )
