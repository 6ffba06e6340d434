"""Calls to one API server: deadlines, patience, fresh credentials, and errors of ours instead of a library's.

The client calls `call` for an answer and `stream` for the lines of a watch. Here are the deadline of a call,
the obedience to Retry-After, the one retry after a 401 with fresh credentials, and the translation of what
aiohttp raises. Nothing else is retried: whether a write whose connection was lost has happened, only the
caller can find out.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import aiohttp
from aiohttp.http import HttpProcessingError

from subnetes.kube.backoff import Backoff
from subnetes.kube.credentials import Credentials
from subnetes.kube.errors import ApiError, CredentialsError, Unavailable, error_of
from subnetes.kube.exchange import Answer, Exchange, Request
from subnetes.kube.identity import Identity
from subnetes.kube.lines import Lines

PATIENT_CODES = frozenset({429, 500, 503})  # the answers that may carry a Retry-After worth obeying
RETRY = Backoff(first=0.1, cap=5.0)  # the least wait between attempts, whatever the server says
SILENCE = 15.0  # seconds past a watch's own end after which its connection counts as dead
JSON = "application/json"
LIBRARY_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)  # a TimeoutError is an OSError


class Transport:
    def __init__(self, credentials: Credentials, *, user_agent: str, deadline: float) -> None:
        self._identity = Identity(credentials, user_agent)
        self._exchange = Exchange(credentials)
        self._deadline = deadline

    async def close(self) -> None:
        await self._identity.close()
        await self._exchange.close()

    async def call(
        self, method: str, path: str, query: str = "", body: bytes | None = None, media_type: str = JSON
    ) -> bytes:
        """The body of a successful answer; anything else is raised, within the deadline."""
        request = Request(method, f"{path}?{query}" if query else path, body, media_type)
        try:
            async with asyncio.timeout(self._deadline) as deadline:
                with await self._answered(request, deadline) as answer:
                    return await answer.read()
        except LIBRARY_ERRORS as problem:
            self._fail(problem, f"{method} {path}")

    @asynccontextmanager
    async def stream(self, path: str, query: str, lasting: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on for `lasting` seconds; it must begin within the deadline."""
        try:
            async with asyncio.timeout(self._deadline) as deadline:
                answer = await self._answered(Request("GET", f"{path}?{query}"), deadline, lasting + SILENCE)
        except LIBRARY_ERRORS as problem:
            self._fail(problem, f"GET {path}")
        with answer:
            yield self._lines(answer, path)

    async def _lines(self, answer: Answer, path: str) -> AsyncIterator[bytes]:
        lines = Lines()
        try:
            async for data in answer.chunks():
                for line in lines.feed(data):
                    yield line
        except LIBRARY_ERRORS as problem:
            self._fail(problem, f"watch {path}")
        if lines.rest.strip():
            raise Unavailable(f"watch {path}: cut off in the middle of an event")

    async def _answered(
        self, request: Request, deadline: asyncio.Timeout, silence: float | None = None
    ) -> Answer:
        """A successful answer, its body not yet read."""
        renewed, attempt = False, 0
        while True:
            attempt += 1
            access = await self._identity.current()
            answer = await self._exchange.send(request, access, silence)
            if answer.status < 300:
                return answer
            with answer:
                error = error_of(answer.status, await answer.read(), _retry_after(answer))
            if answer.status == 401 and not renewed and self._identity.renew(access):
                renewed = True
            else:
                await _wait_as_told(error, attempt, deadline)

    def _fail(self, problem: Exception, doing: str) -> NoReturn:
        if isinstance(problem, aiohttp.ClientSSLError):
            raise CredentialsError(f"{doing}: {problem}") from problem
        if isinstance(problem, aiohttp.ServerTimeoutError):
            raise Unavailable(f"{doing}: the connection fell silent") from problem
        if isinstance(problem, TimeoutError):
            raise Unavailable(f"{doing}: no answer within {self._deadline:g} s") from problem
        raise Unavailable(f"{doing}: {problem or type(problem).__name__}") from problem


async def _wait_as_told(error: ApiError, attempt: int, deadline: asyncio.Timeout) -> None:
    """Sleep for the Retry-After, or raise the error: there is none, or the deadline comes first."""
    end = deadline.when()
    if error.code not in PATIENT_CODES or error.retry_after is None or end is None:
        raise error
    wait = max(error.retry_after, RETRY.draw(attempt))  # "after 0 seconds" must not become a hot loop
    if asyncio.get_running_loop().time() + wait >= end:
        raise error
    await asyncio.sleep(wait)


def _retry_after(answer: Answer) -> float | None:
    """Kubernetes sends seconds; the date that HTTP also allows comes from proxies and is not obeyed."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None
