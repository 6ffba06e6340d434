"""CustomResourceDefinition, as far as `crd` writes it and an installer waits for it."""

from typing import Any, ClassVar

import msgspec

from subnetes.api.meta import Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource


class Names(Model, kw_only=True):
    """What the kind is called in paths, in manifests and on the command line."""

    plural: str
    singular: str = ""
    kind: str
    list_kind: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class PrinterColumn(Model, kw_only=True):
    """A column of `kubectl get`; above priority 0 it shows with `-o wide` only."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int | None = None


class SelectableField(Model, kw_only=True):
    """A field that field selectors may name."""

    json_path: str


class Validation(Model):
    """The schema of one version."""

    open_api_v3_schema: dict[str, Any] | None = msgspec.field(name="openAPIV3Schema", default=None)


class Subresources(Model):
    """The parts of the object with end points of their own."""

    status: dict[str, Any] | None = None
    scale: dict[str, Any] | None = None


class Version(Model, kw_only=True):
    """One representation of the kind."""

    name: str
    served: bool
    storage: bool
    schema: Validation | None = None
    subresources: Subresources | None = None
    additional_printer_columns: list[PrinterColumn] | None = None
    selectable_fields: list[SelectableField] | None = None
    deprecated: bool | None = None
    deprecation_warning: str | None = None


class ServiceReference(Model, kw_only=True):
    """A webhook inside the cluster."""

    namespace: str
    name: str
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(Model):
    """How the API server reaches a webhook: a service or a URL, and the CA (base64 of PEM) to trust."""

    service: ServiceReference | None = None
    url: str | None = None
    ca_bundle: bytes | None = None


class WebhookConversionConfig(Model, kw_only=True):
    """Which webhook converts."""

    client_config: WebhookClientConfig
    conversion_review_versions: list[str]


class Conversion(Model, kw_only=True):
    """How one version becomes another."""

    strategy: str
    webhook: WebhookConversionConfig | None = None


class CustomResourceDefinitionSpec(Model, kw_only=True):
    """A kind: its names, its scope, its versions."""

    group: str
    names: Names
    scope: str
    versions: list[Version]
    conversion: Conversion | None = None
    preserve_unknown_fields: bool | None = None


class DefinitionCondition(Model, kw_only=True):
    """Whether the kind is Established, its NamesAccepted, its schema NonStructuralSchema."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class CustomResourceDefinitionStatus(Model):
    """What the API server made of it."""

    conditions: list[DefinitionCondition] | None = None
    accepted_names: dict[str, Any] | None = None
    stored_versions: list[str] | None = None
    observed_generation: int | None = None


class CustomResourceDefinition(Object, kw_only=True):
    """What makes an API server serve a kind."""

    resource: ClassVar = Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    )

    spec: CustomResourceDefinitionSpec
    status: CustomResourceDefinitionStatus | None = None
