"""Whom the API server trusts when it calls the webhook: `caBundle` in the CRD's conversion.

It is written only where the conversion leads to us: to the service that one of our names is of, or to a URL
with one of our names.
"""

import base64
import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from subnetes.api.customresourcedefinition import CustomResourceDefinition, WebhookClientConfig
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.client import Client
from subnetes.kube.errors import NotFound
from subnetes.kube.patches import MergePatch
from subnetes.webhook.hosts import normal

log = logging.getLogger(__name__)

CRD = f"{NodeNetworkConfig.resource.plural}.{NodeNetworkConfig.resource.group}"


async def definition(client: Client) -> CustomResourceDefinition | None:
    try:
        return await client.get(CustomResourceDefinition, CRD)
    except NotFound:
        return None


def published(crd: CustomResourceDefinition | None, hosts: Collection[str]) -> bytes | None:
    """The bundle that the CRD shows for us; None if its conversion does not lead here."""
    config = _config(crd)
    if config is None or not _leads_to(config, hosts):
        return None
    return config.ca_bundle or b""


async def publish(client: Client, crd: CustomResourceDefinition, bundle: bytes) -> None:
    """Have it show this bundle; a Conflict if the CRD changed since it was read."""
    config = {"clientConfig": {"caBundle": base64.b64encode(bundle).decode()}}
    patch = {
        "metadata": {"resourceVersion": crd.metadata.resource_version},
        "spec": {"conversion": {"webhook": config}},
    }
    await client.patch(CustomResourceDefinition, CRD, MergePatch(patch))
    log.info("%s trusts the authorities of now", CRD)


def _config(crd: CustomResourceDefinition | None) -> WebhookClientConfig | None:
    conversion = crd.spec.conversion if crd else None
    if conversion is None or conversion.strategy != "Webhook" or conversion.webhook is None:
        return None
    return conversion.webhook.client_config


def _leads_to(config: WebhookClientConfig, hosts: Collection[str]) -> bool:
    try:
        if config.service is not None:
            called = f"{config.service.name}.{config.service.namespace}.svc"
        else:
            called = urlsplit(config.url or "").hostname or ""
        return normal(called) in map(normal, hosts)
    except ValueError:
        return False
