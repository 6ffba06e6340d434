"""What the client does when a server, a proxy or the wire misbehaves."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from subnetes.api.resource import Resource
from subnetes.kube import transport
from subnetes.kube.client import Client
from subnetes.kube.credentials import Credentials
from subnetes.kube.errors import (
    BadRequest,
    Conflict,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from subnetes.kube.patches import MergePatch
from tests.harness.processes import free_ports
from tests.harness.scripted import (
    Handler,
    Scripted,
    answer,
    failing,
    hang,
    hang_up,
    scripted,
    status,
    streaming,
)

NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
GOOD = answer(200, {"metadata": {"name": "n"}})


async def one_get(*handlers: Handler, **options: Any) -> Scripted:
    async with scripted(*handlers) as server, Client(server.credentials(), **options) as client:
        await client.get(NODE, "n")
    return server


@pytest.mark.slow
class TestRetryAfter:
    @pytest.mark.parametrize("code", [429, 500, 503])
    async def test_the_wait_is_obeyed_and_the_call_succeeds(self, code: int) -> None:
        began = time.monotonic()
        server = await one_get(failing(code, "Busy", Retry_After="1"), GOOD)
        assert len(server.requests) == 2
        assert time.monotonic() - began >= 1  # never sooner than told

    async def test_a_write_is_repeated_too_for_it_was_not_executed(self) -> None:
        handlers = (failing(429, "TooManyRequests", Retry_After="0"), GOOD)
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            await client.patch(NODE, "n", MergePatch({"a": 1}))
        assert server.bodies == [b'{"a":1}', b'{"a":1}']

    async def test_a_wait_beyond_the_deadline_is_an_error_at_once(self) -> None:
        with pytest.raises(TooManyRequests) as caught:
            await one_get(failing(429, "TooManyRequests", Retry_After="3600"))
        assert caught.value.retry_after == 3600

    async def test_a_server_that_is_always_busy_is_an_error_within_the_deadline(self) -> None:
        with pytest.raises(TooManyRequests):
            await one_get(failing(429, "TooManyRequests", Retry_After="1"), deadline=1.5)

    async def test_after_zero_seconds_is_no_hot_loop(self) -> None:
        handler = failing(429, "TooManyRequests", Retry_After="0")
        async with scripted(handler) as server, Client(server.credentials(), deadline=1.0) as client:
            with pytest.raises(TooManyRequests):
                await client.get(NODE, "n")
        assert 1 < len(server.requests) < 10

    @pytest.mark.parametrize(
        ("code", "reason", "expected"),
        [
            (429, "TooManyRequests", TooManyRequests),
            (500, "InternalError", Unavailable),
            (409, "Conflict", Conflict),
        ],
    )
    async def test_without_being_told_nothing_is_repeated(
        self, code: int, reason: str, expected: type[Exception]
    ) -> None:
        async with scripted(failing(code, reason)) as server, Client(server.credentials()) as client:
            with pytest.raises(expected):
                await client.get(NODE, "n")
        assert len(server.requests) == 1

    async def test_a_watch_waits_as_told_before_it_begins(self) -> None:
        handlers = (failing(429, "TooManyRequests", Retry_After="0"), streaming())
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            assert [event async for event in client.watch(NODE, resource_version="1")] == []
        assert len(server.requests) == 2


class TestBrokenAnswers:
    @pytest.mark.parametrize("body", [b'{"metadata": {"na', b"", b"<html>hello</html>", b"\xff\xfe"])
    async def test_a_good_code_with_a_body_that_is_not_json_is_unavailable(self, body: bytes) -> None:
        with pytest.raises(Unavailable, match="not JSON"):
            await one_get(answer(200, body))

    async def test_a_proxys_error_page_is_unavailable_and_quoted(self) -> None:
        with pytest.raises(Unavailable, match="HTTP 502: <h1>Bad Gateway</h1>"):
            await one_get(answer(502, b"<h1>Bad Gateway</h1>"))

    async def test_a_redirect_is_not_followed(self) -> None:
        with pytest.raises(Unavailable, match="HTTP 302"):
            await one_get(answer(302, b"", Location="http://127.0.0.1:1/"))

    async def test_an_answer_shorter_than_announced_is_unavailable(self) -> None:
        async def short(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"{}")
            return await hang_up(request)

        with pytest.raises(Unavailable) as caught:
            await one_get(short)
        assert isinstance(caught.value.__cause__, aiohttp.ClientError)

    async def test_what_is_no_http_at_all_is_unavailable(self) -> None:
        async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, Client(Credentials(f"http://{host}:{port}")) as client:
            with pytest.raises(Unavailable):
                await client.get(NODE, "n")

    async def test_an_intermediate_answer_is_passed_over(self) -> None:
        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(early, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, Client(Credentials(f"http://{host}:{port}")) as client:
            assert (await client.get(NODE, "n"))["kind"] == "Node"


class TestLostConnections:
    async def test_a_refused_connection_is_unavailable(self) -> None:
        (port,) = free_ports(1)
        async with Client(Credentials(f"http://127.0.0.1:{port}")) as client:
            with pytest.raises(Unavailable, match="GET /api/v1/nodes/n") as caught:
                await client.get(NODE, "n")
        assert isinstance(caught.value.__cause__, aiohttp.ClientConnectorError)

    @pytest.mark.parametrize("method", ["create", "update", "patch", "delete"])
    async def test_a_write_that_got_no_answer_is_never_sent_again(self, method: str) -> None:
        node = {"metadata": {"name": "n"}}
        async with scripted(GOOD, hang_up) as server, Client(server.credentials()) as client:
            await client.get(NODE, "n")  # so that the write goes out on a kept connection
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "create": lambda: client.create(node, resource=NODE),
                "update": lambda: client.update(node, resource=NODE),
                "patch": lambda: client.patch(NODE, "n", MergePatch(node)),
                "delete": lambda: client.delete(NODE, "n"),
            }
            with pytest.raises(Unavailable):
                await calls[method]()
            assert len(server.requests) == 2

    async def test_a_silent_server_is_unavailable_at_the_deadline_and_the_client_goes_on(self) -> None:
        async with scripted(hang, GOOD) as server, Client(server.credentials(), deadline=0.3) as client:
            with pytest.raises(Unavailable, match=r"no answer within 0\.3 s"):
                await client.get(NODE, "n")
            assert (await client.get(NODE, "n"))["metadata"] == {"name": "n"}

    async def test_a_connection_is_kept_for_the_next_call_also_after_an_error(self) -> None:
        handlers = (GOOD, failing(404, "NotFound"), GOOD)
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            await client.get(NODE, "n")
            with pytest.raises(NotFound):
                await client.get(NODE, "n")
            await client.get(NODE, "n")
        assert len(server.requests) == 3
        assert len(server.peers) == 1

    async def test_a_cancelled_call_does_not_leave_its_answer_to_the_next(self) -> None:
        arrived, cancelled = asyncio.Event(), asyncio.Event()

        async def late(request: web.Request) -> web.StreamResponse:
            arrived.set()
            await cancelled.wait()
            return await answer(200, {"metadata": {"name": "late"}})(request)

        async with scripted(late, GOOD) as server, Client(server.credentials()) as client:
            call = asyncio.create_task(client.get(NODE, "slow"))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            cancelled.set()
            assert (await client.get(NODE, "n"))["metadata"] == {"name": "n"}
        assert len(server.peers) == 2


class TestBrokenWatches:
    async def collected(self, watch: AsyncIterator[Any]) -> list[Any]:
        return [event async for event in watch]

    async def test_a_connection_lost_in_the_middle_is_unavailable_after_what_came(self) -> None:
        line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"4"}}}\n'
        async with scripted(streaming(line, then=hang_up)) as server, Client(server.credentials()) as client:
            watch = client.watch(NODE, resource_version="1")
            assert (await anext(watch)).resource_version == "4"
            with pytest.raises(Unavailable):
                await anext(watch)

    async def test_an_end_in_the_middle_of_an_event_is_unavailable(self) -> None:
        async with (
            scripted(streaming(b'{"type":"ADDED","obj')) as server,
            Client(server.credentials()) as client,
        ):
            with pytest.raises(Unavailable, match="in the middle of an event"):
                await self.collected(client.watch(NODE, resource_version="1"))

    async def test_a_watch_that_falls_silent_past_its_end_is_unavailable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transport, "SILENCE", 0.2)
        async with scripted(streaming(b"\n", then=hang)) as server, Client(server.credentials()) as client:
            with pytest.raises(Unavailable, match="fell silent"):
                await self.collected(client.watch(NODE, resource_version="1", timeout_seconds=0))

    async def test_a_watch_outlives_the_deadline_of_calls(self) -> None:
        line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4"}}}\n'

        async def slow(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(0.6)
            await response.write(line)
            return response

        async with scripted(slow) as server, Client(server.credentials(), deadline=0.3) as client:
            seen = await self.collected(client.watch(NODE, resource_version="1"))
        assert [event.resource_version for event in seen] == ["4"]

    async def test_a_watch_that_is_refused_says_why(self) -> None:
        refusal = answer(400, status(400, "BadRequest", "no such selector"))
        async with scripted(refusal) as server, Client(server.credentials()) as client:
            with pytest.raises(BadRequest, match="no such selector"):
                await self.collected(client.watch(NODE, resource_version="1"))
