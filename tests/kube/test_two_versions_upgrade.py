"""From a cluster that knows v1alpha only to v1beta1 as its storage, while clients of both go on working.

The webhook is restarted, scaled and renews its certificates meanwhile. Afterwards every object, seen from
v1alpha, is what it was.
"""

import asyncio
import base64
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from subnetes.api.names import CONVERSION
from subnetes.controllers.migration import Migration, Pace
from subnetes.controllers.term import Term
from tests.harness.clients import client_of
from tests.harness.continuous import Continuous
from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.old_crds import field_crd
from tests.harness.old_nncs import AGENT, collection, everything, field_nncs, owned, plant
from tests.harness.rest import Rest
from tests.harness.two_versions import HUB, OLD, crd_path
from tests.harness.webhook_replicas import Replicas, replicas
from tests.harness.widgets import install
from tests.harness.wire import Wire

pytestmark = pytest.mark.slow

NNCS = 500
PATCHED = slice(0, None, 10)  # of these names, clients change annotations
SHORT_LIVES = ("--ca-lifetime=3600", "--cert-lifetime=12", "--drain=1", "--ca-overlap=4")  # seconds
SHORT_AUTHORITIES = ("--ca-lifetime=45", "--cert-lifetime=10", "--drain=1", "--ca-overlap=4")

Api = ControlPlane | Embedded


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A server of its own, for this changes what a kind is."""
    if request.param == "real":
        with ControlPlane(request.getfixturevalue("assets")) as plane:
            yield plane
    else:
        with Embedded() as server:
            yield server


async def migrate(api: Api, *words: str) -> str:
    """`subnetes migrate`, as an operator runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "subnetes.cli.main",
        "migrate",
        *words,
        f"--kubeconfig={api.kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    return said


async def stored_versions(wire: Wire) -> list[str]:
    found: list[str] = (await wire.get(crd_path())).ok()["status"]["storedVersions"]
    return found


@asynccontextmanager
async def rewriting(api: Api) -> AsyncIterator[None]:
    """DNC-RC's part of the migration and no other: nothing but the storage may change."""
    async with client_of(api) as client:
        pace = Pace(rate=100, settle=1.0, look_every=0.2)
        service = Migration(Term("local", "kube-system", "replica-1", lambda: True), client, pace)
        task = asyncio.create_task(service.run())
        try:
            yield
        finally:
            service.stop()
            await task


async def hurt(webhooks: Replicas) -> None:
    """What a cluster does to a Deployment: a rolling restart, 2 → 1 → 2."""
    await webhooks.roll()
    await webhooks.shrink()
    await webhooks.grow()


def comparable(nnc: dict[str, Any], *, patched: bool) -> dict[str, Any]:
    """Without what may differ: the version of the record, and what the tests' clients wrote.

    metadata.generation is not left out: an upgrade is no change of anybody's spec.
    """
    metadata = {
        key: value
        for key, value in nnc["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    notes = {
        key: value
        for key, value in (metadata.pop("annotations", None) or {}).items()
        if key != CONVERSION and not (patched and key.startswith(("marker/", "last/")))
    }
    return nnc | {"metadata": metadata | {"annotations": notes}}


async def etcd_versions(plane: ControlPlane) -> dict[str, int]:
    """In which versions etcd holds the objects."""
    prefix = b"/registry/acn.azure.com/nodenetworkconfigs/"
    ask = {"key": base64.b64encode(prefix).decode()}
    ask["range_end"] = base64.b64encode(prefix[:-1] + b"0").decode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{plane.etcd_url}/v3/kv/range", json=ask) as answer,
    ):
        found = orjson.loads(await answer.read())
    counts: dict[str, int] = {}
    for pair in found.get("kvs", ()):
        version = orjson.loads(base64.b64decode(pair["value"]))["apiVersion"]
        counts[version] = counts.get(version, 0) + 1
    return counts


async def test_500_nncs_are_upgraded_and_nobody_notices(api: Api, tmp_path: Path) -> None:
    real = isinstance(api, ControlPlane)
    install(Rest(api.url, api.ca_file, api.token), field_crd())
    nncs = field_nncs(NNCS)
    names = [each.name for each in nncs]
    patched, others = names[PATCHED], [name for name in names if name not in set(names[PATCHED])]
    async with Wire(api, "watcher") as wire, Wire(api, "old") as old_wire, Wire(api, "new") as new_wire:
        await plant(wire, nncs, applies=real)
        before = await everything(wire)
        assert len(before) == NNCS
        old = Continuous(old_wire, OLD, patched, others, seed=1)
        new = Continuous(new_wire, HUB, patched, others, seed=2)
        async with replicas(api.kubeconfig, tmp_path, flags=SHORT_LIVES) as webhooks, old, new:
            await asyncio.wait_for(old.served.wait(), 30)
            said = await migrate(api, f"--webhook-url={webhooks.balancer.url}")
            assert "both versions are served" in said
            await asyncio.wait_for(new.served.wait(), 30)
            shown, _ = await certificates(wire, webhooks)
            async with rewriting(api):
                await hurt(webhooks)
                async with asyncio.timeout(200):
                    while await stored_versions(wire) != [HUB]:
                        await asyncio.sleep(0.2)
            async with asyncio.timeout(60):
                while (await certificates(wire, webhooks))[0] == shown:
                    await asyncio.sleep(0.2)
            await asyncio.gather(
                old.mark(patched[0], "x"),
                new.mark(patched[1], "y"),
                new.saw(patched[0], f"last/{OLD}", "x"),
                old.saw(patched[1], f"last/{HUB}", "y"),
            )
            assert webhooks.ended == [0, 0, 0]
            assert webhooks.balancer.refused == 0
            after = await everything(wire)
        assert (old.failures, new.failures) == ([], [])
        for client in (old, new):
            assert min(client.requests[what] for what in ("get", "list", "patch")) > 2, client.requests
    assert after.keys() == before.keys()
    for name in names:
        mine = name in patched
        assert comparable(after[name], patched=mine) == comparable(before[name], patched=mine), name
        if real and not mine:
            assert owned(after[name]) == owned(before[name]), name
    if isinstance(api, ControlPlane):
        assert await etcd_versions(api) == {f"acn.azure.com/{HUB}": NNCS}


async def test_the_authority_is_renewed_and_nobody_notices(api: Api, tmp_path: Path) -> None:
    """Each renewal changes the CRD, so watches are closed and lists may be answered 429, and no more."""
    install(Rest(api.url, api.ca_file, api.token), field_crd())
    nncs = field_nncs(34)
    names = [each.name for each in nncs]
    async with Wire(api, "watcher") as wire, Wire(api, "old") as old_wire, Wire(api, "new") as new_wire:
        await plant(wire, nncs, applies=isinstance(api, ControlPlane))
        before = await everything(wire)
        async with replicas(api.kubeconfig, tmp_path, flags=SHORT_AUTHORITIES) as webhooks:
            await migrate(api, f"--webhook-url={webhooks.balancer.url}")
            old = Continuous(old_wire, OLD, names[:4], names[4:], seed=1)
            new = Continuous(new_wire, HUB, names[:4], names[4:], seed=2)
            async with old, new, asyncio.timeout(100):
                _, trusted = await certificates(wire, webhooks)
                while (now := await certificates(wire, webhooks))[1] == trusted:
                    await asyncio.sleep(0.2)
                shown = now[0]
                while (await certificates(wire, webhooks))[0] == shown:
                    await asyncio.sleep(0.2)
                await old.mark(names[0], "x")
                await new.saw(names[0], f"last/{OLD}", "x")
            assert (old.failures, new.failures) == ([], [])
            after = await everything(wire)
    for name in names[4:]:
        assert comparable(after[name], patched=False) == comparable(before[name], patched=False), name
        if isinstance(api, ControlPlane):
            assert owned(after[name]) == owned(before[name]), name


async def certificates(wire: Wire, webhooks: Replicas) -> tuple[bytes, str]:
    """What a new connection is shown, and the authorities that the API server trusts."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", webhooks.balancer.port, ssl=context)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    conversion = (await wire.get(crd_path())).ok()["spec"]["conversion"]
    return shown, conversion["webhook"]["clientConfig"]["caBundle"]


async def test_a_number_that_an_old_client_changes_is_the_new_clients_sum(api: Api, tmp_path: Path) -> None:
    """Both see each other's requests, before and after the objects are rewritten."""
    install(Rest(api.url, api.ca_file, api.token), field_crd())
    nncs = [each for each in field_nncs(34) if each.shape in ("plain", "two", "three", "releasing")]
    async with Wire(api) as wire:
        await plant(wire, nncs, applies=isinstance(api, ControlPlane))
        async with replicas(api.kubeconfig, tmp_path, number=1) as webhooks:
            await migrate(api, f"--webhook-url={webhooks.balancer.url}")
            await both_ways(wire, [each.name for each in nncs])
            async with rewriting(api), asyncio.timeout(60):
                while await stored_versions(wire) != [HUB]:
                    await asyncio.sleep(0.1)
            await both_ways(wire, [each.name for each in nncs])


async def both_ways(wire: Wire, names: list[str]) -> None:
    for name in names:
        old, hub = f"{collection(OLD)}/{name}", f"{collection(HUB)}/{name}"
        count = (await wire.get(old)).ok()["spec"]["requestedIPCount"]
        split = (await wire.get(hub)).ok()["spec"]["secondaryIPs"]
        assert sum(split.values()) == count
        more = (await wire.merge(old, {"spec": {"requestedIPCount": count + 7}}, fieldManager=AGENT)).ok()
        assert more["spec"]["requestedIPCount"] == count + 7
        grown = (await wire.get(hub)).ok()["spec"]["secondaryIPs"]
        assert sum(grown.values()) == count + 7
        (await wire.merge(hub, {"spec": {"secondaryIPs": {next(iter(grown)): 1}}})).ok()
        least = (await wire.get(hub)).ok()["spec"]["secondaryIPs"]
        assert (await wire.get(old)).ok()["spec"]["requestedIPCount"] == sum(least.values())
