"""What every Kubernetes object has: metadata, conditions, and the Status that answers for errors."""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from subnetes.api.declaration import Column
from subnetes.api.limits import Count, Timestamp, keyed_by, one_of
from subnetes.api.model import Model, View
from subnetes.api.resource import Resource


class OwnerReference(Model, kw_only=True):
    """Who an object belongs to, and goes with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """An object's name, place, history and marks."""

    name: str = ""
    namespace: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    managed_fields: list[dict[str, Any]] | None = None


class ObjectMetaView(View):
    """The part of the metadata of somebody else's object that we read."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Object(Model):
    """A whole object that we may create, update and delete; `resource` says where."""

    resource: ClassVar[Resource]
    short_names: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = ()
    selectable: ClassVar[tuple[str, ...]] = ()  # JSON paths that field selectors may name

    api_version: str = ""
    """The group and version of this representation of the object."""
    kind: str = ""
    """What the object is."""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    """The object's name, place, history and marks."""

    def __post_init__(self) -> None:
        # The encoder must always write both, so they are not left at their (omitted) defaults.
        self.api_version = self.api_version or self.resource.api_version
        self.kind = self.kind or self.resource.kind


ConditionType = Annotated[str, Meta(min_length=1, max_length=316)]
ConditionReason = Annotated[str, Meta(max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]


class Condition(Model, kw_only=True):
    """One observation about an object, in the form that `kubectl wait --for=condition=…` understands."""

    type: ConditionType
    """What is observed, such as Ready. There is one condition of each type."""
    status: Annotated[str, one_of("True", "False", "Unknown")]
    """Whether it holds."""
    reason: ConditionReason
    """Why, in one CamelCase word for programs."""
    message: Annotated[str, Meta(max_length=32768)] = ""
    """Why, in a sentence for people."""
    last_transition_time: Timestamp
    """When the status last changed."""
    observed_generation: Count | None = None
    """The generation of the object that was looked at; if the object's is higher, this is old news."""


Conditions = Annotated[list[Condition], keyed_by("type")]


class StatusCause(Model):
    """One field that is wrong."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Model):
    """Which object a Status is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class Status(Model):
    """The API server's answer where there is no object to answer with: every error, some deletions."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: dict[str, Any] = {}
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0
