"""The replicas' common certificates: one Secret, which each of them follows and any of them may renew.

There is no leader. Whoever finds something due writes the Secret as a whole, on the condition that it is as
it was read; who comes second starts over from what the first wrote. The CRD is read before the Secret: so
what is written to it is never older than what it shows, for who has shown more has changed it, a conflict.

    read CRD ─▶ read Secret ─▶ decide (certificates.py) ─▶ write Secret ─▶ write the CRD's bundle ─▶ show

A replica may be killed between any two of these: the others see the change and go on from there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from subnetes.api import names
from subnetes.api.core import Secret
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import ObjectMeta
from subnetes.kube.backoff import Backoff
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from subnetes.kube.informer import Informer
from subnetes.kube.metrics import Metrics
from subnetes.kube.selection import Selection
from subnetes.kube.services import until
from subnetes.webhook import trust
from subnetes.webhook.certificates import (
    Holdings,
    Plan,
    Unreadable,
    kept,
    next_look,
    read,
    renewed,
    signed_by,
)
from subnetes.webhook.tls import Shown

log = logging.getLogger(__name__)

SECRET = "subnetes-webhook-certs"
_RETRY = Backoff(first=0.2, cap=30.0)
_LONGEST_WAIT, _SHORTEST_WAIT = timedelta(hours=1), timedelta(seconds=0.2)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Settings:
    hosts: Collection[str]
    plan: Plan = field(default_factory=Plan)
    namespace: str = names.NAMESPACE
    secret: str = SECRET
    now: Callable[[], datetime] = _now


class Authority:
    """A `Service`; run the `informers` beside it."""

    name = "webhook-authority"

    def __init__(self, client: Client, shown: Shown, settings: Settings, metrics: Metrics) -> None:
        self._client = client
        self._shown = shown
        self._settings = settings
        self._held: Holdings | None = None  # as last read or written
        self._news = asyncio.Event()
        self._stop = asyncio.Event()
        self.informers = self._informers(metrics)

    def _informers(self, metrics: Metrics) -> tuple[Informer[Secret], Informer[CustomResourceDefinition]]:
        def only(name: str) -> str:
            return f"metadata.name={name}"

        settings = self._settings
        secrets = Selection(self._client, Secret, settings.namespace, field_selector=only(settings.secret))
        definitions = Selection(self._client, CustomResourceDefinition, field_selector=only(trust.CRD))
        secret = Informer("webhook-secret", secrets, metrics=metrics)
        secret.on_change(self._changed)
        crd = Informer("webhook-crd", definitions, metrics=metrics)
        crd.on_change(self._changed)
        return secret, crd

    def _changed(self, _old: object, _new: object) -> None:
        self._news.set()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await until(self._stop, self._keep())

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._news.clear()
            try:
                wait = await self.look()
            except (Conflict, AlreadyExists):
                log.info("another replica was faster: starting over")
                await asyncio.sleep(_RETRY.draw(1))
                continue
            except ApiError as problem:
                failures += 1
                log.warning("certificates: %s: %s", type(problem).__name__, problem)
                await asyncio.sleep(_RETRY.draw(failures))
                continue
            failures = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait.total_seconds()):
                    await self._news.wait()

    async def look(self) -> timedelta:
        """Do what is due; how long nothing will be."""
        settings, now = self._settings, self._settings.now()
        crd = await trust.definition(self._client)
        published = trust.published(crd, settings.hosts)
        secret = await self._secret()
        held = self._read(secret)
        wanted = renewed(held, now, settings.plan, settings.hosts, published)
        if secret is None or kept(wanted) != secret.data:
            await self._write(secret, wanted)
        self._held = wanted
        assert wanted.leaf is not None
        if published is None or signed_by(wanted.leaf.certificate, published):
            self._shown.show(wanted.leaf)
        if crd is not None and published is not None and published != wanted.bundle:
            await trust.publish(self._client, crd, wanted.bundle)
        self._shown.show(wanted.leaf)
        return min(max(next_look(wanted) - settings.now(), _SHORTEST_WAIT), _LONGEST_WAIT)

    def _read(self, secret: Secret | None) -> Holdings:
        """What the Secret says; if it is gone or spoilt, what it said before: nobody's trust is lost."""
        if secret is not None and secret.data:
            try:
                return read(secret.data)
            except Unreadable as problem:
                log.warning("the Secret %s is not as it should be: %s", self._settings.secret, problem)
        return self._held or Holdings()

    async def _secret(self) -> Secret | None:
        try:
            return await self._client.get(Secret, self._settings.secret, self._settings.namespace)
        except NotFound:
            return None

    async def _write(self, old: Secret | None, holdings: Holdings) -> None:
        if old is None:
            metadata = ObjectMeta(name=self._settings.secret, namespace=self._settings.namespace)
            made = Secret(metadata=metadata, type="kubernetes.io/tls", data=kept(holdings))
            try:
                await self._client.create(made)
            except Forbidden as problem:
                where = f"{self._settings.namespace}/{self._settings.secret}"
                words = f"there is no Secret {where}, and we may not create it ({problem})"
                raise Forbidden(f"{words}: apply deploy/rbac/webhook.yaml") from problem
            return
        old.data = kept(holdings)
        await self._client.update(old)
