"""One HTTP/1.1 request and its answer, on a pooled connection.

aiohttp's connector (pool, TLS, proxies) and its response parser do the work. What is left out is its
ClientSession: cookies, redirects, tracing, payload types and header merging that Kubernetes does not use and
that cost a third of a call's CPU (docs/decisions/0003). Leaving it out also means that nothing is ever sent
twice behind the caller's back. `transport.py` is the only caller.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from yarl import URL

from subnetes.kube.credentials import Credentials
from subnetes.kube.identity import Access

CONNECTING = aiohttp.ClientTimeout(total=None, sock_connect=10)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str  # path and query, encoded
    body: bytes | None = None
    media_type: str = "application/json"

    def encode(self, prefix: str, head: bytes) -> bytes:
        line = f"{self.method} {prefix}{self.target} HTTP/1.1\r\n".encode()
        if self.body is None:
            return line + head + b"\r\n"
        content = f"Content-Type: {self.media_type}\r\nContent-Length: {len(self.body)}\r\n\r\n".encode()
        return b"".join((line, head, content, self.body))


class Answer:
    """A status and headers whose body is still to be read, all at once or as it comes."""

    def __init__(
        self, connection: Connection, message: RawResponseMessage, payload: aiohttp.StreamReader
    ) -> None:
        self.status = message.code
        self.headers = message.headers
        self._connection = connection
        self._payload = payload

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The connection goes back to the pool if its answer was read to the end, else it is cut off."""
        if not self._payload.is_eof():
            _cut_off(self._connection)
        self._connection.release()

    async def read(self) -> bytes:
        return await self._payload.read()

    def chunks(self) -> AsyncIterator[bytes]:
        return aiter(self._payload.iter_any())


class Exchange:
    def __init__(self, credentials: Credentials) -> None:
        server = URL(credentials.server)
        self._credentials = credentials
        self._origin = server.origin()
        self._prefix = server.raw_path.rstrip("/")
        if credentials.proxy and server.scheme == "http":
            self._prefix = str(self._origin) + self._prefix  # a proxy must be told the whole URL
        self._connector: aiohttp.TCPConnector | None = None
        self._route: tuple[Access, aiohttp.ClientRequest] | None = None

    async def close(self) -> None:
        if self._connector is not None:
            await self._connector.close()
            self._connector = None

    async def send(self, request: Request, access: Access, silence: float | None = None) -> Answer:
        """The answer, once its headers are there; `silence` is how long its body may pause."""
        if self._connector is None:
            # No limit: watches hold connections; callers bound the rest.
            self._connector = aiohttp.TCPConnector(limit=0)
        connection = await self._connector.connect(self._towards(access), [], CONNECTING)
        try:
            return await self._converse(connection, request.encode(self._prefix, access.head), silence)
        except BaseException:
            _cut_off(connection)
            connection.close()
            raise

    async def _converse(self, connection: Connection, data: bytes, silence: float | None) -> Answer:
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True, read_timeout=silence)
        protocol.transport.write(data)
        protocol.start_timeout()
        while True:
            message, payload = await protocol.read()
            if message.code >= 200:
                return Answer(connection, message, payload)

    def _towards(self, access: Access) -> aiohttp.ClientRequest:
        """What the connector keys its pool on: where to, through what, and as whom as far as TLS knows."""
        if self._route is None or self._route[0] is not access:
            proxy, authorization = self._credentials.proxy, None
            if proxy and proxy.authorization:
                authorization = {"Proxy-Authorization": proxy.authorization}
            request = aiohttp.ClientRequest(
                "GET",
                self._origin,
                loop=asyncio.get_running_loop(),
                ssl=access.ssl,
                server_hostname=self._credentials.tls.server_name,
                proxy=URL(proxy.url) if proxy else None,
                proxy_headers=authorization,
            )
            self._route = (access, request)
        return self._route[1]


def _cut_off(connection: Connection) -> None:
    """Without the goodbye of TLS, which would wait for a server that has more to say, past our own end."""
    if connection.transport is not None:
        connection.transport.abort()
