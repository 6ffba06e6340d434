"""Certificates that others make: files that are read again and again, as cert-manager and the kubelet change
them.

A pair that is half written, or of which one half is new, is not taken into use: the old one stays until the
files fit together. With the authority's file, the CRD is made to trust it before the pair is shown, beside
those that it trusts already: other replicas may have other files.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.metrics import Metrics
from subnetes.kube.selection import Selection
from subnetes.kube.services import until
from subnetes.webhook import trust
from subnetes.webhook.certificates import Pair, Unreadable, joined
from subnetes.webhook.tls import BadPair, Shown, check

log = logging.getLogger(__name__)

EVERY = 2.0  # seconds


@dataclass(frozen=True)
class Paths:
    certificate: Path
    key: Path
    authority: Path | None = None


class Injection:
    """The authority's file into the CRD; the informer's copy says whether it is there already."""

    def __init__(self, client: Client, hosts: Collection[str], metrics: Metrics) -> None:
        self._client = client
        self._hosts = hosts
        only = f"metadata.name={trust.CRD}"
        source = Selection(client, CustomResourceDefinition, field_selector=only)
        self.informer = Informer("webhook-crd", source, metrics=metrics)

    async def ensure(self, authority: bytes, chain: bytes) -> None:
        """Unreadable if the authority is not the chain's."""
        await self.informer.synced()
        crd = self.informer.store.get(Key("", trust.CRD))
        shown = trust.published(crd, self._hosts)
        wanted = joined(shown or b"", authority, chain, datetime.now(UTC))
        if crd is not None and shown is not None and shown != wanted:
            await trust.publish(self._client, crd, wanted)


class Files:
    """A `Service`. At the start the files must be good; later, what is not is only told."""

    name = "webhook-files"

    def __init__(
        self, paths: Paths, shown: Shown, injection: Injection | None = None, every: float = EVERY
    ) -> None:
        self._paths = paths
        self._shown = shown
        self._injection = injection
        self._every = every
        self._told = ""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        check(self._pair())
        await until(self._stop, self._follow())

    async def _follow(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(self._every)

    async def _look(self) -> None:
        try:
            pair = self._pair()
            if self._injection and self._paths.authority:
                check(pair)
                await self._injection.ensure(self._paths.authority.read_bytes(), pair.certificate)
            self._shown.show(pair)
        except (ApiError, BadPair, OSError, Unreadable) as problem:
            self._tell(f"{type(problem).__name__}: {problem}")
        else:
            self._told = ""

    def _pair(self) -> Pair:
        return Pair(self._paths.certificate.read_bytes(), self._paths.key.read_bytes())

    def _tell(self, text: str) -> None:
        if text != self._told:
            log.warning("the certificate stays as it is: %s", text)
        self._told = text
