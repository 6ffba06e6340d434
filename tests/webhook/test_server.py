"""The server in this process: what it refuses, and a certificate that changes while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from subnetes.api.conversion import HUB, convert
from subnetes.webhook import files
from subnetes.webhook.certificates import Pair
from subnetes.webhook.files import Files, Paths
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.server import Server, Settings
from subnetes.webhook.tls import BadPair, Shown
from tests.harness.certificates import Authority
from tests.harness.clients import eventually
from tests.webhook.world import NAME, old_nnc, post, response_of, review, session


class Served:
    def __init__(self, shown: Shown, server: Server, url: str) -> None:
        self.shown, self.server, self.url = shown, server, url


def pair_of(authority: Authority) -> Pair:
    issued = authority.issue("webhook")
    return Pair(issued.certificate.read_bytes(), issued.key.read_bytes())


@asynccontextmanager
async def serving(pair: Pair, **settings: int | float) -> AsyncIterator[Served]:
    metrics = WebhookMetrics(CollectorRegistry())
    shown = Shown(metrics)
    server = Server(Settings(NAME, 0, **{"drain": 0, **settings}), shown.context, shown.certified, metrics)  # type: ignore[arg-type]
    running = asyncio.create_task(server.run())
    try:
        await asyncio.sleep(0)
        assert not server.ready()
        shown.show(pair)
        url = await server.url
        assert server.ready()
        yield Served(shown, server, url)
    finally:
        server.stop()
        await running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca")


async def test_a_review_is_converted(authority: Authority) -> None:
    async with serving(pair_of(authority)) as served, session(authority.file) as client:
        status, body = await post(client, f"{served.url}/convert", review([old_nnc()]))
        assert status == 200
        assert response_of(body)["convertedObjects"] == [convert(old_nnc(), HUB)]


async def test_what_is_refused_is_explained_in_a_review(authority: Authority) -> None:
    body = review([old_nnc()])
    async with serving(pair_of(authority)) as served, session(authority.file) as client:
        for method, path, headers, sent, wanted in (
            ("POST", "/", {}, body, 404),
            ("GET", "/convert", {}, None, 405),
            ("PUT", "/convert", {}, body, 405),
            ("POST", "/convert", {"Content-Encoding": "gzip"}, gzip.compress(body), 415),
            ("POST", "/convert", {}, b"{", 400),
            ("POST", "/convert", {}, b"", 400),
            ("POST", "/convert?timeout=30s", {}, body, 200),
        ):
            async with client.request(method, served.url + path, headers=headers, data=sent) as answer:
                assert answer.status == wanted
                response_of(await answer.read())


@pytest.mark.parametrize("sized", [True, False])
async def test_more_than_is_taken_is_413(authority: Authority, sized: bool) -> None:
    body = b"x" * 50_000

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield body[:5000]

    async with (
        serving(pair_of(authority), largest=40_000, spooled=10_000) as served,
        session(authority.file) as client,
        client.post(f"{served.url}/convert", data=body if sized else pieces()) as answer,
    ):
        assert answer.status == 413
        assert "at most 40000 bytes" in response_of(await answer.read())["result"]["message"]


@pytest.mark.parametrize("objects", [0, 1, 40])
async def test_a_large_review_is_answered_as_a_small_one(authority: Authority, objects: int) -> None:
    nncs = [old_nnc(f"node-{number}") for number in range(objects)]
    async with serving(pair_of(authority), spooled=10) as served, session(authority.file) as client:
        status, body = await post(client, f"{served.url}/convert", review(nncs))
        assert status == 200
        assert response_of(body)["convertedObjects"] == [convert(each, HUB) for each in nncs]
        status, body = await post(client, f"{served.url}/convert", b"x" * 11)
        assert status == 400
        assert response_of(body)["uid"] == ""


async def test_a_process_for_large_reviews_that_dies_is_a_failure(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho half an answer\nkill -9 $$\n")
    dying.chmod(0o755)
    async with serving(pair_of(authority), spooled=10) as served, session(authority.file) as client:
        monkeypatch.setattr("sys.executable", str(dying))
        status, body = await post(client, f"{served.url}/convert", review([old_nnc()]))
        assert status == 500
        assert "failed" in response_of(body)["result"]["message"]


@pytest.mark.parametrize(("begun", "status"), [(b"", b"408"), (b"5\r\n{", b"408"), (b"zz\r\n{}\r\n", b"400")])
async def test_a_body_that_does_not_come_is_not_waited_for(
    authority: Authority, begun: bytes, status: bytes
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    async with serving(pair_of(authority), patience=0.1) as served:
        port = int(served.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(NAME, port, ssl=context)
        writer.write(b"POST /convert HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + begun)
        assert (await reader.readline()).split()[1] == status
        if status == b"408":
            await reader.readuntil(b"\r\n\r\n")
            response_of(await reader.readuntil(b"}}"))
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_a_disk_without_room_is_told(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("subnetes.webhook.server.tempfile.TemporaryFile", lambda **_: Full())
    async with serving(pair_of(authority), spooled=10) as served, session(authority.file) as client:
        status, body = await post(client, f"{served.url}/convert", review([old_nnc()]))
        assert status == 507
        assert "No space left" in response_of(body)["result"]["message"]


async def test_connections_outlive_their_certificate_and_new_ones_see_the_next(tmp_path: Path) -> None:
    first, second = Authority.create(tmp_path / "first"), Authority.create(tmp_path / "second")
    body = review([old_nnc()])
    async with serving(pair_of(first)) as served, session(first.file, connections=1) as old_client:
        url = f"{served.url}/convert"
        assert (await post(old_client, url, body))[0] == 200
        for now, before in ((second, first), (first, second)):
            served.shown.show(pair_of(now))
            assert (await post(old_client, url, body))[0] == 200  # the connection that it has
            async with session(now.file) as new_client:
                assert (await post(new_client, url, body))[0] == 200
            async with session(before.file) as late_client:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await post(late_client, url, body)


async def test_a_pair_that_does_not_fit_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    first, second = Authority.create(tmp_path / "first"), Authority.create(tmp_path / "second")
    good, other = pair_of(first), pair_of(second)
    async with serving(good) as served:
        bad = (
            Pair(other.certificate, good.key),
            Pair(b"", b""),
            Pair(good.certificate[:100], good.key),
            Pair(good.certificate, b"-----BEGIN"),
        )
        for each in bad:
            with pytest.raises(BadPair):
                served.shown.show(each)
            async with session(first.file) as client:
                assert (await post(client, f"{served.url}/convert", review([])))[0] == 200


async def test_no_tls_before_1_2(authority: Authority) -> None:
    shown = Shown(WebhookMetrics(CollectorRegistry()))
    assert shown.context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_files_are_read_again_and_half_a_pair_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Authority.create(tmp_path / "first"), Authority.create(tmp_path / "second")
    old, new = pair_of(first), pair_of(second)
    paths = Paths(tmp_path / "tls.crt", tmp_path / "tls.key")
    paths.certificate.write_bytes(old.certificate)
    paths.key.write_bytes(old.key)
    async with serving(old) as served:
        following = Files(paths, served.shown, every=0.01)
        running = asyncio.create_task(following.run())
        try:
            await asyncio.sleep(0)  # at the start, the files must fit
            paths.certificate.write_bytes(new.certificate)
            await eventually(lambda: "the certificate stays as it is" in caplog.text)
            async with session(first.file) as client:
                assert (await post(client, f"{served.url}/convert", review([])))[0] == 200
            paths.key.write_bytes(new.key)
            await eventually(lambda: served.shown.pair == new)
            async with session(second.file) as client:
                assert (await post(client, f"{served.url}/convert", review([])))[0] == 200
            paths.key.unlink()
            await eventually(lambda: "No such file" in caplog.text)
        finally:
            following.stop()
            await running
        assert caplog.text.count(files.__name__) == 2, "each trouble is told once"
