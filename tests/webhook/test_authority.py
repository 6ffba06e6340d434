"""Replicas that share their certificates through a Secret, at times that the test chooses."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from subnetes.api.core import Secret
from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition, ServiceReference
from subnetes.api.names import NAMESPACE
from subnetes.apiserver.server import Config, Server
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists, Conflict
from subnetes.kube.metrics import Metrics
from subnetes.kube.patches import MergePatch
from subnetes.webhook import trust
from subnetes.webhook.authority import SECRET, Authority, Settings
from subnetes.webhook.certificates import Plan, expiry_of, make_authority, signed_by
from subnetes.webhook.files import Files, Injection, Paths
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.tls import Shown
from tests.harness.certificates import Authority as Foreign
from tests.harness.clients import client_of, eventually

HOSTS = ["subnetes-webhook.kube-system.svc", "127.0.0.1"]
OURS = WebhookConversion(ServiceReference(namespace=NAMESPACE, name="subnetes-webhook", path="/convert"))
DAY = timedelta(days=1)


class Killed(Exception):
    """The replica's process ended here."""


class Mortal:
    """The client; the process may die after so many writes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.dies_after: int | None = None
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _write(self) -> None:
        if self.dies_after == 0:
            raise Killed
        self.writes += 1
        if self.dies_after is not None:
            self.dies_after -= 1

    async def create(self, obj: Any) -> Any:
        self._write()
        return await self._client.create(obj)

    async def update(self, obj: Any) -> Any:
        self._write()
        return await self._client.update(obj)

    async def patch(self, *arguments: Any) -> Any:
        self._write()
        return await self._client.patch(*arguments)


class World:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def replica(self, hosts: list[str] = HOSTS) -> Replica:
        return Replica(self, hosts)

    async def crd(self) -> CustomResourceDefinition:
        return await self.client.get(CustomResourceDefinition, trust.CRD)

    async def bundle(self) -> bytes:
        return trust.published(await self.crd(), HOSTS) or b""

    async def secret(self) -> Secret:
        return await self.client.get(Secret, SECRET, NAMESPACE)

    async def converted_by(self, conversion: dict[str, Any]) -> None:
        patch = MergePatch({"spec": {"conversion": conversion}})
        await self.client.patch(CustomResourceDefinition, trust.CRD, patch)


class Replica:
    def __init__(self, world: World, hosts: list[str]) -> None:
        self.api = Mortal(world.client)
        self.shown = Shown(WebhookMetrics(CollectorRegistry()))
        settings = Settings(hosts, Plan(), now=lambda: world.now)
        self.authority = Authority(self.api, self.shown, settings, Metrics())  # type: ignore[arg-type]

    async def look(self) -> timedelta:
        """Until nobody was faster."""
        while True:
            try:
                return await self.authority.look()
            except (Conflict, AlreadyExists):
                pass

    @property
    def leaf(self) -> bytes:
        assert self.shown.pair is not None
        return self.shown.pair.certificate


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Server(Config(data=None, crds=crds(OURS))) as server, client_of(server) as client:
        yield World(client)


async def test_the_first_replica_makes_what_the_others_use(world: World) -> None:
    first, second = world.replica(), world.replica()
    await first.look()
    await second.look()
    secret = await world.secret()
    assert secret.data is not None
    assert secret.type == "kubernetes.io/tls"
    assert first.leaf == second.leaf == secret.data["tls.crt"]
    assert await world.bundle() == secret.data["ca.crt"]
    assert (first.api.writes, second.api.writes) == (2, 0)


async def test_replicas_that_begin_together_agree(world: World) -> None:
    replicas = [world.replica() for _ in range(5)]
    await asyncio.gather(*(each.look() for each in replicas))
    await asyncio.gather(*(each.look() for each in replicas))
    assert len({each.leaf for each in replicas}) == 1
    assert signed_by(replicas[0].leaf, await world.bundle())


async def test_nothing_is_shown_before_the_crd_trusts_it(world: World) -> None:
    replica = world.replica()
    replica.api.dies_after = 1  # the Secret is written, the CRD is not
    with pytest.raises(Killed):
        await replica.look()
    assert await world.secret()
    assert await world.bundle() == b""
    assert replica.shown.pair is None
    other = world.replica()
    await other.look()
    assert signed_by(other.leaf, await world.bundle())
    assert other.api.writes == 1


async def test_nothing_is_written_while_nothing_is_due(world: World) -> None:
    replica = world.replica()
    await replica.look()
    before = (await world.crd()).metadata.resource_version
    world.now += timedelta(days=59)
    wait = await replica.look()
    assert timedelta(0) < wait <= DAY
    assert replica.api.writes == 2
    assert (await world.crd()).metadata.resource_version == before


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_shown_is_trusted_at_every_moment_of_three_years(world: World, seed: int) -> None:
    """Replicas look in any order, die between any two writes, and are begun anew with nothing."""
    dice = random.Random(seed)
    replicas = [world.replica(), world.replica()]
    for each in replicas:
        await each.look()
    issuers, died = set(), 0
    for _ in range(70):
        world.now += DAY * dice.uniform(5, 25)
        for number in dice.sample(range(2), 2):
            replicas[number].api.dies_after = dice.choice([None, None, 0, 1])
            try:
                await replicas[number].look()
            except Killed:
                died += 1
                replicas[number] = world.replica()
            for each in replicas:
                if each.shown.pair is not None:
                    assert signed_by(each.leaf, await world.bundle())
        for number in range(2):
            replicas[number].api.dies_after = None
            await replicas[number].look()
            assert expiry_of(replicas[number].leaf) > world.now
        assert signed_by(replicas[0].leaf, await world.bundle())
        issuers.add((await world.bundle())[:300])
    assert died > 3
    assert len(issuers) >= 3


async def test_a_secret_that_is_lost_or_spoilt_is_written_again_as_it_was(world: World) -> None:
    replica = world.replica()
    await replica.look()
    before = (await world.secret()).data
    await world.client.delete(Secret, SECRET, NAMESPACE)
    await replica.look()
    assert (await world.secret()).data == before
    spoilt = await world.secret()
    spoilt.data = {"tls.crt": b"x"}
    spoilt.type = ""
    await world.client.delete(Secret, SECRET, NAMESPACE)
    spoilt.metadata.resource_version = spoilt.metadata.uid = None
    await world.client.create(spoilt)
    await replica.look()
    assert (await world.secret()).data == before
    newcomer = world.replica()
    await newcomer.look()
    assert newcomer.leaf == replica.leaf


@pytest.mark.parametrize(
    "conversion",
    [
        {"strategy": "None", "webhook": None},
        {"webhook": {"clientConfig": {"service": {"name": "other", "namespace": NAMESPACE}}}},
        {"webhook": {"clientConfig": {"service": None, "url": "https://elsewhere/convert"}}},
    ],
)
async def test_a_conversion_that_leads_elsewhere_is_left_alone(
    world: World, conversion: dict[str, Any]
) -> None:
    await world.converted_by(conversion)
    before = (await world.crd()).metadata.resource_version
    replica = world.replica()
    await replica.look()
    assert replica.shown.pair is not None
    assert (await world.crd()).metadata.resource_version == before
    assert replica.api.writes == 1


async def test_a_url_with_our_name_leads_to_us(world: World) -> None:
    url = {"clientConfig": {"service": None, "url": "https://127.0.0.1:9443/convert"}}
    await world.converted_by({"webhook": url})
    replica = world.replica()
    await replica.look()
    assert await world.bundle()
    assert signed_by(replica.leaf, await world.bundle())


async def test_a_bundle_that_somebody_changed_is_put_right(world: World) -> None:
    replica = world.replica()
    running = [asyncio.create_task(each.run()) for each in (*replica.authority.informers, replica.authority)]
    try:
        await asyncio.wait_for(replica.shown.certified.wait(), 30)
        good = (await world.secret()).data["ca.crt"]  # type: ignore[index]
        foreign = base64.b64encode(make_authority(world.now, DAY).certificate).decode()
        for wrong in (None, foreign):
            await world.converted_by({"webhook": {"clientConfig": {"caBundle": wrong}}})
            async with asyncio.timeout(30):
                while await world.bundle() != good:
                    await asyncio.sleep(0.01)
    finally:
        for part in (*replica.authority.informers, replica.authority):
            part.stop()
        await asyncio.gather(*running)


async def test_the_authority_of_files_is_written_to_the_crd_and_follows_the_file(
    world: World, tmp_path: Any
) -> None:
    first, second = Foreign.create(tmp_path / "first"), Foreign.create(tmp_path / "second")
    issued = first.issue("webhook")
    paths = Paths(issued.certificate, issued.key, tmp_path / "ca.crt")
    assert paths.authority is not None
    paths.authority.write_bytes(first.file.read_bytes())
    shown = Shown(WebhookMetrics(CollectorRegistry()))
    injection = Injection(world.client, HOSTS, Metrics())
    files = Files(paths, shown, injection, every=0.01)
    running = [asyncio.create_task(each.run()) for each in (injection.informer, files)]
    try:
        await asyncio.wait_for(shown.certified.wait(), 30)
        assert await world.bundle() == first.file.read_bytes()
        other = second.issue("webhook")
        paths.authority.write_bytes(first.file.read_bytes() + second.file.read_bytes())
        issued.certificate.write_bytes(other.certificate.read_bytes())
        issued.key.write_bytes(other.key.read_bytes())
        await eventually(lambda: shown.pair is not None and shown.pair.key == other.key.read_bytes())
        assert second.file.read_bytes() in await world.bundle()
    finally:
        injection.informer.stop()
        files.stop()
        await asyncio.gather(*running)
