"""API servers on which NodeNetworkConfig has both versions, and an NNC's paths in each."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson

from subnetes.api.crd import WebhookConversion, crds
from subnetes.apiserver.server import Config, Server
from subnetes.webhook.review import answer
from tests.harness.control_plane import ControlPlane
from tests.harness.rest import Rest
from tests.harness.subnet_states import SUBNET_STATES
from tests.harness.webhook import ConversionWebhook
from tests.harness.widgets import CRDS, install

OLD, HUB = "v1alpha", "v1beta1"


def all_crds(webhook: ConversionWebhook) -> list[dict[str, Any]]:
    """Ours, with both versions served, and the one that only agents of v1alpha know."""
    config = webhook.crd_conversion()["webhook"]["clientConfig"]
    conversion = WebhookConversion(config["url"], base64.b64decode(config["caBundle"]))
    return [*crds(conversion), SUBNET_STATES]


@contextmanager
def converted_webhook(folder: Path) -> Iterator[ConversionWebhook]:
    """In a thread of ours; a test of the process itself starts `subnetes webhook`."""
    with ConversionWebhook(folder, lambda review: answer(orjson.dumps(review)).body) as webhook:
        yield webhook


@asynccontextmanager
async def embedded_with_both(folder: Path) -> AsyncIterator[Server]:
    with converted_webhook(folder) as webhook:
        async with Server(Config(data=None, crds=all_crds(webhook))) as server:
            yield server


@contextmanager
def real_with_both(assets: Path, folder: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, with the garbage collector that every cluster has."""
    with converted_webhook(folder) as webhook, ControlPlane(assets) as plane:
        plane.start_controller_manager()
        rest = Rest(plane.url, plane.ca_file, plane.token)
        for each in all_crds(webhook):
            install(rest, each)
        yield plane


def crd_path(name: str = "nodenetworkconfigs.acn.azure.com") -> str:
    return f"{CRDS}/{name}"
