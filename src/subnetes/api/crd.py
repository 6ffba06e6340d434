"""The CustomResourceDefinitions of all our kinds, made from their structs when asked for.

`crds()` is for the embedded API server and for installers; `generate` writes the same to deploy/crds/.

A kind with several versions needs a conversion webhook: without one Kubernetes relabels the object and
prunes what the other version does not have, so that a single write by an old client destroys the spec.
Therefore only the storage version is served until a webhook is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.clusternetwork import ClusterNetwork
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.customresourcedefinition import (
    Conversion,
    CustomResourceDefinition,
    CustomResourceDefinitionSpec,
    Names,
    PrinterColumn,
    SelectableField,
    ServiceReference,
    Subresources,
    Validation,
    Version,
    WebhookClientConfig,
    WebhookConversionConfig,
)
from subnetes.api.declaration import Column
from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.model import to_builtins
from subnetes.api.nad import NetworkAttachmentDefinition
from subnetes.api.network import Network
from subnetes.api.networkclass import NetworkClass
from subnetes.api.nodenetwork import NodeNetwork
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.schema import openapi_v3_schema

# Each kind's versions, the storage version first.
KINDS: tuple[tuple[type[Object], ...], ...] = (
    (NodeNetworkConfig, nodenetworkconfig_v1alpha.NodeNetworkConfig),
    (ClusterSubnet,),
    (NetworkClass,),
    (ClusterNetwork,),
    (NodeNetwork,),
    (Network,),
    (NetworkAttachmentDefinition,),
)


@dataclass(frozen=True, slots=True)
class WebhookConversion:
    """Where the API server finds the conversion webhook: a URL, or a service inside the cluster."""

    target: str | ServiceReference
    ca_bundle: bytes | None = None


def crds(conversion: WebhookConversion | None = None) -> list[dict[str, Any]]:
    """Every CRD as it goes over the wire."""
    return [to_builtins(custom_resource_definition(versions, conversion)) for versions in KINDS]


def custom_resource_definition(
    versions: Sequence[type[Object]], conversion: WebhookConversion | None = None
) -> CustomResourceDefinition:
    """The CRD of one kind; `versions` begins with the storage version."""
    hub, *others = versions
    resource = hub.resource
    converted = conversion is not None and bool(others)
    spec = CustomResourceDefinitionSpec(
        group=resource.group,
        names=_names(hub),
        scope="Namespaced" if resource.namespaced else "Cluster",
        versions=[
            _version(hub, served=True, storage=True),
            *(_version(other, served=converted, storage=False) for other in others),
        ],
        conversion=_conversion(conversion)
        if conversion is not None and others
        else Conversion(strategy="None"),
    )
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=f"{resource.plural}.{resource.group}"), spec=spec
    )


def _names(hub: type[Object]) -> Names:
    kind = hub.resource.kind
    return Names(
        plural=hub.resource.plural,
        singular=_singular(hub),
        kind=kind,
        list_kind=f"{kind}List",
        short_names=list(hub.short_names) or None,
    )


def _singular(hub: type[Object]) -> str:
    plural, kind = hub.resource.plural, hub.resource.kind.lower()
    return plural.removesuffix("s") if "-" in plural else kind  # hyphens in the one, hyphens in the other


def _version(kind: type[Object], *, served: bool, storage: bool) -> Version:
    schema = openapi_v3_schema(kind)
    return Version(
        name=kind.resource.version,
        served=served,
        storage=storage,
        schema=Validation(open_api_v3_schema=schema),
        subresources=Subresources(status={}) if "status" in schema["properties"] else None,
        additional_printer_columns=[_column(column) for column in kind.columns] or None,
        selectable_fields=[SelectableField(json_path=path) for path in kind.selectable] or None,
    )


def _column(column: Column) -> PrinterColumn:
    priority = 1 if column.wide else None
    return PrinterColumn(name=column.name, type=column.type, json_path=column.json_path, priority=priority)


def _conversion(webhook: WebhookConversion) -> Conversion:
    client = WebhookClientConfig(
        url=webhook.target if isinstance(webhook.target, str) else None,
        service=None if isinstance(webhook.target, str) else webhook.target,
        ca_bundle=webhook.ca_bundle,
    )
    config = WebhookConversionConfig(client_config=client, conversion_review_versions=["v1"])
    return Conversion(strategy="Webhook", webhook=config)
