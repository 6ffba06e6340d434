"""Replicas that share their certificates through a Secret, at times that the test chooses."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from subnetes.api.core import Secret
from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import CustomResourceDefinition, ServiceReference
from subnetes.api.meta import ObjectMeta
from subnetes.api.names import NAMESPACE
from subnetes.apiserver.server import Config, Server
from subnetes.kube.client import Client
from subnetes.kube.errors import AlreadyExists, Conflict, Forbidden
from subnetes.kube.metrics import Metrics
from subnetes.kube.patches import MergePatch
from subnetes.kube.services import Service
from subnetes.webhook import trust
from subnetes.webhook.authority import SECRET, Authority, Settings
from subnetes.webhook.certificates import Plan, expiry_of, make_authority, signed_by
from subnetes.webhook.files import Files, Injection, Paths
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.tls import Shown
from tests.harness.certificates import Authority as Foreign
from tests.harness.certificates import Pair as Issued
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
        self.may_create = True
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
        if not self.may_create:
            raise Forbidden("secrets is forbidden")
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
@pytest.mark.slow
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


async def test_a_secret_that_is_there_but_empty_is_filled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.client.create(Secret(metadata=ObjectMeta(name=SECRET, namespace=NAMESPACE)))
    replica = world.replica()
    await replica.look()
    assert await world.bundle() == ((await world.secret()).data or {})["ca.crt"]
    assert not caplog.records


async def test_a_secret_that_may_not_be_created_is_told(world: World) -> None:
    replica = world.replica()
    replica.api.may_create = False
    with pytest.raises(Forbidden, match=r"no Secret kube-system/.* apply deploy/rbac/webhook.yaml"):
        await replica.look()


@pytest.mark.parametrize("spoil", ["deleted", "emptied"])
async def test_a_newcomer_without_the_secret_leaves_the_others_trusted(world: World, spoil: str) -> None:
    running = world.replica()
    await running.look()
    if spoil == "deleted":
        await world.client.delete(Secret, SECRET, NAMESPACE)
    else:
        secret = await world.secret()
        assert secret.data is not None
        secret.data["ca.crt"] = b""
        await world.client.update(secret)
    newcomer = world.replica()
    await newcomer.look()
    bundle = await world.bundle()
    assert signed_by(newcomer.leaf, bundle)
    assert signed_by(running.leaf, bundle)


async def test_replicas_with_different_hosts_stop_writing(world: World) -> None:
    replicas = [world.replica([host]) for host in HOSTS]
    for days in (0, 70):
        world.now += DAY * days
        for each in replicas:
            await each.look()
        written = sum(each.api.writes for each in replicas)
        for each in replicas * 2:
            await each.look()
        assert sum(each.api.writes for each in replicas) == written


async def test_a_bundle_that_cannot_be_read_ends_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server may take what we cannot read; ours does not."""
    replica = world.replica()
    await replica.look()
    good = await world.bundle()
    spoilt = good + b"-----BEGIN X-----\n!\n-----END X-----\n"
    with monkeypatch.context() as context:
        context.setattr(trust, "published", lambda *_: spoilt)
        await replica.look()
    assert replica.api.writes == 3, "put right"
    assert await world.bundle() == good


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


@pytest.mark.parametrize(
    ("host", "called"),
    [("127.0.0.1", "127.0.0.1"), ("fd00::1", "[FD00:0::1]"), ("FD00:0::1", "[fd00::1]"), ("A.B", "a.B")],
)
async def test_a_url_with_our_name_leads_to_us(world: World, host: str, called: str) -> None:
    url = {"clientConfig": {"service": None, "url": f"https://{called}:9443/convert"}}
    await world.converted_by({"webhook": url})
    replica = world.replica([host])
    await replica.look()
    bundle = trust.published(await world.crd(), [host])
    assert bundle
    assert signed_by(replica.leaf, bundle)


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


class FileReplica:
    """With certificates of files, and an authority's file of its own."""

    def __init__(self, world: World, folder: Path, authority: Foreign) -> None:
        self._issued = authority.issue("webhook")
        self.file = folder / f"{authority.folder.name}.ca"
        self.file.write_bytes(authority.file.read_bytes())
        self.shown = Shown(WebhookMetrics(CollectorRegistry()))
        self.injection = Injection(world.client, HOSTS, Metrics())
        paths = Paths(self._issued.certificate, self._issued.key, self.file)
        self.files = Files(paths, self.shown, self.injection, every=0.01)

    def write(self, issued: Issued) -> None:
        self._issued.certificate.write_bytes(issued.certificate.read_bytes())
        self._issued.key.write_bytes(issued.key.read_bytes())


@asynccontextmanager
async def running(*replicas: FileReplica) -> AsyncIterator[None]:
    services: list[Service] = [part for each in replicas for part in (each.injection.informer, each.files)]
    tasks = [asyncio.create_task(each.run()) for each in services]
    try:
        for replica in replicas:
            await asyncio.wait_for(replica.shown.certified.wait(), 30)
        yield
    finally:
        for each in services:
            each.stop()
        await asyncio.gather(*tasks)


async def test_the_authority_of_files_is_written_to_the_crd_and_follows_the_file(
    world: World, tmp_path: Path
) -> None:
    first, second = Foreign.create(tmp_path / "first"), Foreign.create(tmp_path / "second")
    replica = FileReplica(world, tmp_path, first)
    shown = replica.shown
    async with running(replica):
        assert await world.bundle() == first.file.read_bytes()
        other = second.issue("webhook")
        replica.file.write_bytes(first.file.read_bytes() + second.file.read_bytes())
        replica.write(other)
        await eventually(lambda: shown.pair is not None and shown.pair.key == other.key.read_bytes())
        assert second.file.read_bytes() in await world.bundle()


async def test_replicas_with_different_authorities_are_trusted_together(world: World, tmp_path: Path) -> None:
    authorities = [Foreign.create(tmp_path / name) for name in ("first", "second")]
    async with running(*(FileReplica(world, tmp_path, each) for each in authorities)):
        bundle = await world.bundle()
        assert all(each.file.read_bytes() in bundle for each in authorities)
        version = (await world.crd()).metadata.resource_version
    async with running(*(FileReplica(world, tmp_path, each) for each in authorities)):
        assert (await world.crd()).metadata.resource_version == version


@pytest.mark.parametrize("bad", [b"", b"-----BEGIN CERTIFICATE-----\nMIIB"])
async def test_an_authority_of_files_that_is_cut_short_is_told_and_not_published(
    world: World, tmp_path: Path, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Foreign.create(tmp_path / "first"), Foreign.create(tmp_path / "second")
    replica = FileReplica(world, tmp_path, first)
    async with running(replica):
        before = replica.shown.pair
        replica.file.write_bytes(bad)
        await eventually(lambda: "the authority's file" in caplog.text)
        caplog.clear()
        replica.write(second.issue("webhook"))
        replica.file.write_bytes(first.file.read_bytes())
        await eventually(lambda: "has signed ours" in caplog.text)
        assert replica.shown.pair == before
        assert await world.bundle() == first.file.read_bytes()
