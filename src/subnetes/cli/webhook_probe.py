"""Whether a conversion webhook really converts: one object is sent up and its answer down again.

A URL is asked directly, over TLS as the API server would. A service is asked through the API server's proxy,
which does not check the certificate (`check_certificate` does, where it is known); where that is forbidden,
its EndpointSlices must show a ready endpoint.
"""

import base64
import json
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import aiohttp
from cryptography import x509

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.crd import WebhookConversion
from subnetes.api.customresourcedefinition import ServiceReference
from subnetes.api.migration import CONVERT_PATH, HTTPS
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError, Forbidden
from subnetes.webhook.certificates import BUNDLE, Unreadable, expiry_of, read, signed_by

DEADLINE = aiohttp.ClientTimeout(total=10)
SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig.resource.api_version
HUB = NodeNetworkConfig.resource.api_version

Object = dict[str, Any]
Ask = Callable[[bytes], Awaitable[bytes]]

_NC, _FIRST, _SECOND = (str(uuid.uuid5(uuid.NAMESPACE_DNS, each)) for each in ("nc", "first", "second"))
SAMPLE: Object = {
    "apiVersion": OLD,
    "kind": NodeNetworkConfig.resource.kind,
    "metadata": {
        "name": "subnetes-probe",
        "namespace": NAMESPACE,
        "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, "uid")),
    },
    "spec": {"requestedIPCount": 2, "ipsNotInUse": [_FIRST]},
    "status": {
        "assignedIPCount": 2,
        "networkContainers": [
            {
                "id": _NC,
                "primaryIP": "10.0.0.4",
                "subnetName": "pods",
                "subnetID": "pods",
                "ipAssignments": [{"name": _FIRST, "ip": "10.0.0.5"}, {"name": _SECOND, "ip": "10.0.0.6"}],
            }
        ],
    },
}


class NotConverting(Exception):
    """The webhook does not answer, or not as it should."""


async def probe(client: Client, conversion: WebhookConversion) -> str:
    """How it was asked; raises NotConverting."""
    if isinstance(conversion.target, str):
        await _converts(_directly(conversion.target, conversion.ca_bundle))
        return "asked directly, certificate checked"
    try:
        await _converts(_proxied(client, conversion.target))
    except Forbidden:
        await _has_endpoint(client, conversion.target)
        return (
            "not asked, for we may not use the API server's proxy; its EndpointSlices show a ready endpoint"
        )
    except ApiError as problem:
        raise NotConverting(" ".join(str(problem).split())) from problem
    return "asked through the API server's proxy, certificate not checked"


def check_certificate(data: Mapping[str, bytes], host: str, now: datetime) -> None:
    """Raises NotConverting unless the API server would trust what the webhook's Secret keeps."""
    try:
        holdings = read(data)
        leaf = data["tls.crt"]
        names = x509.load_pem_x509_certificate(leaf).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (Unreadable, x509.ExtensionNotFound) as problem:
        raise NotConverting(f"the certificates cannot be read: {problem}") from problem
    if not signed_by(leaf, holdings.bundle):
        raise NotConverting(f"tls.crt is signed by no authority of {BUNDLE}")
    if host not in (known := names.value.get_values_for_type(x509.DNSName)):
        raise NotConverting(f"tls.crt is not for {host}, only for {', '.join(known) or 'no name'}")
    if expiry_of(leaf) <= now:
        raise NotConverting(f"tls.crt expired at {expiry_of(leaf):%Y-%m-%dT%H:%M:%SZ}")


def named(client_config: Mapping[str, Any]) -> WebhookConversion:
    """Where the CRD in force says that the webhook is."""
    bundle = base64.b64decode(client_config.get("caBundle") or "") or None
    if url := client_config.get("url"):
        return WebhookConversion(url, bundle)
    service = client_config["service"]
    reference = ServiceReference(
        namespace=service["namespace"],
        name=service["name"],
        path=service.get("path"),
        port=service.get("port"),
    )
    return WebhookConversion(reference, bundle)


async def _converts(ask: Ask) -> None:
    up = await _converted(ask, SAMPLE, HUB)
    wanted = {"secondaryIPs": {_NC: 2}, "releasedIPs": [_FIRST]}
    if up.get("spec") != wanted:
        raise NotConverting(f"it made {up.get('spec')} of {SAMPLE['spec']}, not {wanted}")
    down = await _converted(ask, up, OLD)
    for part in ("spec", "status"):
        if down.get(part) != SAMPLE[part]:
            raise NotConverting(f"{part} is not what it was after {HUB} and back: {down.get(part)}")


async def _converted(ask: Ask, obj: Object, to: str) -> Object:
    uid = str(uuid.uuid4())
    request = {"uid": uid, "desiredAPIVersion": to, "objects": [obj]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    try:
        response = json.loads(await ask(json.dumps(head | {"request": request}).encode()))["response"]
        if response["uid"] != uid:
            raise NotConverting("it answered another review than it was sent")
        if response["result"]["status"] != "Success":
            raise NotConverting(f"it refused: {response['result'].get('message')}")
        (converted,) = response["convertedObjects"]
        if _identity(converted) != _identity(obj | {"apiVersion": to}):
            raise NotConverting(f"it answered with another object: {_identity(converted)}")
    except (ValueError, KeyError, TypeError) as problem:
        raise NotConverting(f"its answer is no ConversionReview: {problem!r}") from problem
    done: Object = converted
    return done


def _identity(obj: Object) -> list[str]:
    return [obj["apiVersion"], obj["kind"], *(obj["metadata"][key] for key in ("namespace", "name", "uid"))]


def _directly(url: str, ca_bundle: bytes | None) -> Ask:
    async def ask(body: bytes) -> bytes:
        try:
            context = ssl.create_default_context(cadata=ca_bundle.decode() if ca_bundle else None)
            headers = {"Content-Type": "application/json"}
            async with (
                aiohttp.ClientSession(timeout=DEADLINE) as session,
                session.post(url, data=body, headers=headers, ssl=context) as answer,
            ):
                if answer.status != 200:
                    raise NotConverting(f"{url} answers with HTTP {answer.status}")
                return await answer.read()
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            why = " ".join(str(problem).split()) or "no answer in time"
            raise NotConverting(f"{url}: {why}") from problem

    return ask


def _proxied(client: Client, service: ServiceReference) -> Ask:
    place = f"/api/v1/namespaces/{service.namespace}/services/https:{service.name}:{service.port or HTTPS}"
    return lambda body: client.post(f"{place}/proxy{service.path or CONVERT_PATH}", body)


async def _has_endpoint(client: Client, service: ServiceReference) -> None:
    selector = f"kubernetes.io/service-name={service.name}"
    try:
        found = (await client.list(SLICES, service.namespace, label_selector=selector)).items
    except ApiError as problem:
        raise NotConverting(f"neither proxy nor EndpointSlices can be asked: {problem}") from problem
    ends = [end.get("conditions") or {} for each in found for end in each.get("endpoints") or ()]
    if not any(each.get("ready", True) for each in ends):
        raise NotConverting(f"the service {service.namespace}/{service.name} has no ready endpoint")
