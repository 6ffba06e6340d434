"""A fresh world on a server that many tests share: what an earlier one left is taken away."""

import asyncio
from typing import Any

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import ConfigMap, Event, Lease, Node, Pod
from subnetes.api.meta import Object
from subnetes.api.model import View
from subnetes.api.names import NAMESPACE, RETURNING
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.client import Client
from subnetes.kube.errors import NotFound
from subnetes.kube.patches import MergePatch

KINDS: tuple[tuple[type[Object] | type[View], str | None, str], ...] = (
    (Pod, None, ""),
    (Node, None, ""),
    (NodeNetworkConfig, NAMESPACE, ""),
    (ClusterSubnet, NAMESPACE, ""),
    (ConfigMap, NAMESPACE, RETURNING),
    (Event, None, ""),
    (Lease, NAMESPACE, ""),
)


async def wipe(client: Client) -> None:
    for kind, namespace, labels in KINDS:
        await _wipe_kind(client, kind, namespace, labels)


async def _wipe_kind(client: Client, kind: Any, namespace: str | None, labels: str) -> None:
    async with asyncio.timeout(30):
        while found := (await client.list(kind, namespace, label_selector=labels)).items:
            mine = [each for each in found if not _foreign(kind, each)]
            if not mine:
                return
            await asyncio.gather(*(_end(client, kind, each) for each in mine))


def _foreign(kind: Any, obj: Any) -> bool:
    """kube-apiserver keeps a lease of its own."""
    return kind is Lease and obj.metadata.name.startswith("apiserver-")


async def _end(client: Client, kind: Any, obj: Any) -> None:
    name, namespace = obj.metadata.name, obj.metadata.namespace
    try:
        await client.delete(kind, name, namespace, grace_seconds=0)
        if getattr(obj.metadata, "finalizers", None):
            await client.patch(kind, name, MergePatch({"metadata": {"finalizers": None}}), namespace)
    except NotFound:
        return
