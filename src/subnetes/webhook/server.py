"""POST /convert over TLS: the door that the API server knocks at.

A review is answered in the loop, for it takes less than a handover would; a large one goes to a file and from
there through a process of its own (bulk.py). The certificate can be changed at any moment (tls.py): open
connections go on, and new ones see the new certificate.

Large reviews take room on the disk, and connections take memory: there are so many at once of each, and who
comes above that is told to come again.

Asked to stop, it says so at /readyz (page.py) and serves on for a while, so that nobody is sent here any
more; each answer meanwhile asks the client to leave. Then it closes its door, and ends when all is answered.
"""

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

from aiohttp import web

from subnetes.webhook.bulk import Bulk, NoRoom, spool
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.review import Answer, answer, failure

PATH = "/convert"
LARGEST = 512 << 20  # bytes of a review
SPOOLED = 1 << 20  # bytes from which a review is converted apart
_JSON = "application/json"
_CHUNK = 256 << 10
_COME_AGAIN = "1"  # seconds
_LEAVING = 2.0  # seconds


@dataclass(frozen=True)
class Settings:
    host: str
    port: int
    drain: float = 5.0  # seconds between the first word that we go and the closed door
    largest: int = LARGEST
    spooled: int = SPOOLED
    patience: float = 60.0  # seconds for a body to arrive; the API server waits 30 s for the answer
    spools: int = 4  # large reviews at once
    connections: int = 1000  # at once; above twice as many, none is listened to
    closing: float = 8.0  # seconds for what is under way at the closed door, twice: before it is told, after


class TooLarge(Exception):
    """The body is more than we take."""


class TooMany(Exception):
    """There are as many as we take; the text says of what."""


class _Door(web.Server):
    """Knows its connections: which are more than we take, and when the last one is gone."""

    def __init__(self, handler: Any, most: int) -> None:
        super().__init__(handler, access_log=None, auto_decompress=False, handler_cancellation=True)
        self._most = most
        self._open: set[Any] = set()
        self.surplus: set[Any] = set()
        self.left = asyncio.Event()
        self.left.set()

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open.add(handler)
        self.left.clear()
        if len(self._open) > self._most:
            self.surplus.add(handler)
        if len(self._open) > 2 * self._most:
            transport.abort()

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.discard(handler)
        self.surplus.discard(handler)
        if not self._open:
            self.left.set()


class Server:
    """A `Service`. It listens once `certified` is set: there is nothing to show before."""

    name = "webhook"

    def __init__(
        self,
        settings: Settings,
        context: ssl.SSLContext,
        certified: asyncio.Event,
        metrics: WebhookMetrics,
        review: Callable[[bytes], Answer] = answer,
    ) -> None:
        self._settings = settings
        self._context = context
        self._certified = certified
        self._metrics = metrics
        self._review = review
        self._bulk = Bulk()
        self._spools = 0
        self._door = _Door(self._handle, settings.connections)
        self._stop = asyncio.Event()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ready(self) -> bool:
        return self.url.done() and not self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await _first(self._certified, self._stop)
        if self._stop.is_set():
            return
        runner = web.ServerRunner(self._door, shutdown_timeout=self._settings.closing)
        await runner.setup()
        try:
            host = self._settings.host
            await web.TCPSite(
                runner, host, self._settings.port, ssl_context=self._context, backlog=1024
            ).start()
            shown = f"[{host}]" if ":" in host else host
            self.url.set_result(f"https://{shown}:{runner.addresses[0][1]}")
            await self._stop.wait()
            await asyncio.sleep(self._settings.drain)
        finally:
            await runner.cleanup()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING):  # what is answered may be on its way yet
                    await self._door.left.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != PATH:
            return self._failed(404, f"there is nothing at {request.path[:200]}: reviews go to {PATH}")
        if request.method != "POST":
            return self._failed(405, "a review is sent with POST")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return self._failed(415, "a review is sent as it is, without a Content-Encoding")
        try:
            with ExitStack() as stack:
                return await self._answered(request, stack)
        except TooLarge:
            return self._failed(413, f"a review has at most {self._settings.largest} bytes")
        except TimeoutError:
            return self._failed(408, f"the body did not arrive within {self._settings.patience:.0f} s")
        except TooMany as problem:
            return self._failed(503, str(problem))
        except NoRoom as problem:
            return self._failed(507, str(problem))

    async def _answered(self, request: web.BaseRequest, stack: ExitStack) -> web.StreamResponse:
        """What the body takes while it is needed is left to the stack."""
        if request.protocol in self._door.surplus:
            raise TooMany(f"there are {self._settings.connections} connections already")
        async with asyncio.timeout(self._settings.patience):
            body = await self._body(request, stack)
        return self._here(body) if isinstance(body, bytes) else await self._apart(request, body)

    async def _body(self, request: web.BaseRequest, stack: ExitStack) -> bytes | IO[bytes]:
        """As bytes, or if it is large as a file without a name."""
        if (request.content_length or 0) > self._settings.largest:
            raise TooLarge
        chunks: list[bytes] = []
        size = 0
        while size <= self._settings.spooled:
            chunk = await request.content.readany()
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
        stack.enter_context(self._turn())
        file = stack.enter_context(spool())
        await self._spooled(request, b"".join(chunks), file)
        return file

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """For a large review, from its body to the end of its answer."""
        if self._spools >= self._settings.spools:
            raise TooMany(f"{self._spools} large reviews are in work already")
        self._spools += 1
        try:
            yield
        finally:
            self._spools -= 1

    async def _spooled(self, request: web.BaseRequest, begun: bytes, file: IO[bytes]) -> None:
        size, chunk = 0, begun
        while chunk:
            size += len(chunk)
            if size > self._settings.largest:
                raise TooLarge
            _write(file, chunk)
            chunk = await request.content.readany()

    def _here(self, body: bytes) -> web.Response:
        began = time.perf_counter()
        answered = self._review(body)
        self._metrics.reviewed(answered, time.perf_counter() - began)
        return self._response(answered)

    async def _apart(self, request: web.BaseRequest, body: IO[bytes]) -> web.StreamResponse:
        self._metrics.bulk()
        async with self._bulk.converted(body) as (status, answered):
            response = web.StreamResponse(status=status, headers={"Content-Type": _JSON})
            response.content_length = answered.seek(0, os.SEEK_END)
            answered.seek(0)
            self._ask_to_leave(response)
            try:
                async with asyncio.timeout(self._settings.patience):
                    await _send(request, response, answered)
            except TimeoutError:  # who asked does not read
                if request.transport is not None:
                    request.transport.abort()
            return response

    def _failed(self, status: int, message: str) -> web.Response:
        return self._response(failure("", message, status))

    def _response(self, answered: Answer) -> web.Response:
        response = web.Response(body=answered.body, status=answered.status, headers={"Content-Type": _JSON})
        if answered.status == 503:
            response.headers["Retry-After"] = _COME_AGAIN
            response.force_close()
        self._ask_to_leave(response)
        return response

    def _ask_to_leave(self, response: web.StreamResponse) -> None:
        if self._stop.is_set():
            response.force_close()


async def _send(request: web.BaseRequest, response: web.StreamResponse, answered: IO[bytes]) -> None:
    await response.prepare(request)
    while chunk := answered.read(_CHUNK):
        await response.write(chunk)
        await asyncio.sleep(0)  # the small ones first: a write waits only for a slow client
    await response.write_eof()


def _write(file: IO[bytes], chunk: bytes) -> None:
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as problem:
        raise NoRoom(problem) from problem


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(each.wait()) for each in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
