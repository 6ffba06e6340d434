"""The server in this process: what it refuses, and a certificate that changes while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import tempfile
from asyncio import StreamReader as Reader
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

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

pytestmark = pytest.mark.slow


class Served:
    def __init__(self, shown: Shown, server: Server, url: str) -> None:
        self.shown, self.server, self.url = shown, server, url
        self.over = False

    def ended(self, _: object) -> None:
        self.over = True


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
        served = Served(shown, server, url)
        running.add_done_callback(served.ended)
        yield served
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


def _no_file(**_: object) -> IO[bytes]:
    raise OSError(28, "No space left on device")


def _full_file(**_: object) -> IO[bytes]:
    return Path("/dev/full").open("wb+", buffering=0)


@pytest.mark.parametrize("failing", [[_no_file], [_full_file], [tempfile.TemporaryFile, _no_file]])
async def test_a_disk_without_room_is_told(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, failing: list[Callable[..., IO[bytes]]]
) -> None:
    """For the body, while it is written, for the answer."""
    files = iter(failing)
    monkeypatch.setattr("subnetes.webhook.bulk.tempfile.TemporaryFile", lambda **words: next(files)(**words))
    async with serving(pair_of(authority), spooled=10) as served, session(authority.file) as client:
        status, body = await post(client, f"{served.url}/convert", review([old_nnc()]))
        assert status == 507
        assert "No space left" in response_of(body)["result"]["message"]


async def test_an_answer_without_room_is_a_failure(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: Iterator[Callable[..., IO[bytes]]] = iter([tempfile.TemporaryFile, _full_file])
    monkeypatch.setattr("subnetes.webhook.bulk.tempfile.TemporaryFile", lambda **words: next(files)(**words))
    async with serving(pair_of(authority), spooled=10) as served, session(authority.file) as client:
        status, body = await post(client, f"{served.url}/convert", review([old_nnc()]))
        assert status == 500
        assert "failed" in response_of(body)["result"]["message"]


@asynccontextmanager
async def begun(served: Served, authority: Authority, body: bytes, length: int) -> AsyncIterator[Reader]:
    """A request whose body comes as far as `body`, and whose answer is not read."""
    context = ssl.create_default_context(cafile=str(authority.file))
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    own.connect((NAME, int(served.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=own, ssl=context, server_hostname=NAME)
    writer.write(b"POST /convert HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + body)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def answered(client: aiohttp.ClientSession, url: str, status: int) -> aiohttp.ClientResponse:
    """The first answer with this status to a large review."""
    async with asyncio.timeout(60):
        while True:
            async with client.post(f"{url}/convert", data=review([old_nnc()])) as answer:
                body = await answer.read()
                assert answer.status in (200, 503)
                assert response_of(body)
                if answer.status == status:
                    return answer
            await asyncio.sleep(0.01)


async def test_more_large_reviews_than_there_is_room_for_are_told_to_come_again(authority: Authority) -> None:
    async with serving(pair_of(authority), spooled=10, spools=2) as served, session(authority.file) as client:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(begun(served, authority, b" " * 20, 1000))
            refused = await answered(client, served.url, 503)
            assert refused.headers["Retry-After"] == "1"
            status, _ = await post(client, f"{served.url}/convert", b"{}")
            assert status == 400, "a small one is answered"
        await answered(client, served.url, 200)


async def test_more_connections_than_are_taken_are_told_to_come_again(authority: Authority) -> None:
    async with serving(pair_of(authority), connections=2) as served, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(begun(served, authority, b"", 1000))
        for _ in range(2):
            reader = await stack.enter_async_context(begun(served, authority, b"", 1000))
            assert (await reader.readline()).split()[1] == b"503"
            assert b"Retry-After: 1" in await reader.readuntil(b"\r\n\r\n")
            response_of(await reader.readuntil(b"}}"))


async def test_connections_without_end_are_not_listened_to(authority: Authority) -> None:
    async with serving(pair_of(authority), connections=0) as served:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
            async with begun(served, authority, b"", 1000) as reader:
                await reader.readexactly(1)


@pytest.mark.slow
async def test_who_does_not_read_a_large_answer_does_not_hold_its_place(authority: Authority) -> None:
    large = review([old_nnc(f"node-{number}", 250) for number in range(400)])  # more than sockets hold
    settings = {"spooled": 10, "spools": 1, "patience": 3.0}
    async with (
        serving(pair_of(authority), **settings) as served,
        session(authority.file) as client,
        begun(served, authority, large, len(large)),
    ):
        await answered(client, served.url, 503)
        await answered(client, served.url, 200)


async def test_a_body_that_does_not_come_does_not_hold_the_stop(authority: Authority) -> None:
    whole = Settings(NAME, 0)
    assert whole.drain + 2 * whole.closing < 25, "a pod has 30 s"
    async with (
        serving(pair_of(authority), spooled=10, spools=1, closing=0.05) as served,
        session(authority.file) as client,
        begun(served, authority, b" " * 20, 1000),
    ):
        await answered(client, served.url, 503)
        served.server.stop()
        await eventually(lambda: served.over, 20)


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
