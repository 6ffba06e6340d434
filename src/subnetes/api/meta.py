"""What every Kubernetes object has: metadata, conditions, and the Status that answers for errors."""

from typing import Any, ClassVar

import msgspec

from subnetes.api.model import Model
from subnetes.api.resource import Resource


class OwnerReference(Model, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
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


class Object(Model):
    """A whole object that we may create, update and delete; `resource` says where."""

    resource: ClassVar[Resource]

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    def __post_init__(self) -> None:
        # The encoder must always write both, so they are not left at their (omitted) defaults.
        self.api_version = self.api_version or self.resource.api_version
        self.kind = self.kind or self.resource.kind


class Condition(Model, kw_only=True):
    """One observation about an object, in the form that `kubectl wait --for=condition=…` understands."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: int | None = None


class StatusCause(Model):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Model):
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
