"""Credentials in use: the headers and the TLS context that are right now, kept fresh.

The transport asks before every request. Files are read again when they change (a kubelet rotates tokens and
certificates under us), an exec plugin runs again when what it printed expires, and after a 401 everything is
fetched anew, once for all the requests that were refused together.
"""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from subnetes.kube.credentials import Basic, ClientCertificate, Credentials, ExecPlugin, Pem, Token, TokenFile
from subnetes.kube.errors import CredentialsError
from subnetes.kube.exec_plugin import ExecCredential, run_plugin
from subnetes.kube.tls import tls_context

CHECK = 1.0  # seconds between looks at files that may have changed


@dataclass(frozen=True, slots=True)
class Access:
    """What a request needs, ready-made: one is used for thousands of requests."""

    head: bytes = field(repr=False)  # the header lines that every request has
    ssl: ssl.SSLContext | bool


Fingerprint = tuple[tuple[int, int, int], ...]


class Identity:
    def __init__(
        self,
        credentials: Credentials,
        user_agent: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._now = now
        self._files = _files_of(credentials)
        self._plugin_run: asyncio.Task[None] | None = None
        self._issued: ExecCredential | None = None
        self._fingerprint: Fingerprint = ()
        self._next_check = 0.0
        self._access: Access | None = None

    async def current(self) -> Access:
        if isinstance(self._credentials.authentication, ExecPlugin):
            await self._run_when_expired(self._credentials.authentication)
        if self._access is not None and (not self._files or time.monotonic() < self._next_check):
            return self._access
        fingerprint = _fingerprint(self._files)
        if self._access is None or fingerprint != self._fingerprint:
            self._access = self._read()
            self._fingerprint = fingerprint
        self._next_check = time.monotonic() + CHECK
        return self._access

    def renew(self, refused: Access) -> bool:
        """Have everything fetched anew because `refused` got a 401; False if that cannot change anything."""
        if refused is self._access:
            self._access = self._issued = None
        return bool(self._files) or isinstance(self._credentials.authentication, ExecPlugin)

    async def close(self) -> None:
        """End a plugin that still runs."""
        if self._plugin_run is not None:
            self._plugin_run.cancel()
            await asyncio.wait([self._plugin_run])

    async def _run_when_expired(self, plugin: ExecPlugin) -> None:
        """One run serves all who wait, and outlives a caller whose deadline is shorter than the plugin."""
        issued = self._issued
        if issued is not None and (issued.expires is None or issued.expires > self._now()):
            return
        if self._plugin_run is None:
            self._plugin_run = asyncio.create_task(self._run(plugin))
            self._plugin_run.add_done_callback(self._ran)
        await asyncio.shield(self._plugin_run)

    async def _run(self, plugin: ExecPlugin) -> None:
        self._issued = await run_plugin(plugin)
        self._access = None

    def _ran(self, run: asyncio.Task[None]) -> None:
        self._plugin_run = None
        if not run.cancelled():
            run.exception()  # seen by whoever waited; if nobody does any more, the next call tries again

    def _read(self) -> Access:
        try:
            return Access(self._head(), self._tls())
        except (OSError, ssl.SSLError, ValueError) as problem:
            raise CredentialsError(f"credentials cannot be used: {problem}") from problem

    def _head(self) -> bytes:
        """The header lines; uncompressed answers, for gzip costs a server more than a cluster's network."""
        headers = [
            ("Host", urlsplit(self._credentials.server).netloc.rpartition("@")[2]),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", self._user_agent),
            *self._credentials.impersonation,
        ]
        authorization = self._authorization()
        if authorization:
            headers.append(("Authorization", authorization))
        return b"".join(_header_line(name, value) for name, value in headers)

    def _authorization(self) -> str | None:
        match self._credentials.authentication:
            case Token(token):
                return f"Bearer {token}"
            case TokenFile(path):
                return f"Bearer {_token_in(path)}"
            case Basic(username, password):
                return "Basic " + b64encode(f"{username}:{password}".encode()).decode()
            case ExecPlugin() if self._issued and self._issued.token:
                return f"Bearer {self._issued.token}"
        return None

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._credentials.server.startswith("https:"):
            return True
        client: ClientCertificate | None = self._credentials.tls.client
        if self._issued and self._issued.client:
            client = self._issued.client
        return tls_context(self._credentials.tls, client)


def _header_line(name: str, value: str) -> bytes:
    if any(ord(character) < 32 for character in name + value):
        raise ValueError(f"the value of {name} has a control character")
    return f"{name}: {value}\r\n".encode()


def _token_in(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise ValueError(f"{path} holds no token")
    return token


def _files_of(credentials: Credentials) -> list[Path]:
    client = credentials.tls.client
    pems: list[Pem | None] = [credentials.tls.authority]
    pems += [client.certificate, client.key] if client else []
    token = [credentials.authentication.path] if isinstance(credentials.authentication, TokenFile) else []
    return [pem for pem in pems if isinstance(pem, Path)] + token


def _fingerprint(files: list[Path]) -> Fingerprint:
    try:
        stats: list[Any] = [path.stat() for path in files]
    except OSError as problem:
        raise CredentialsError(f"credentials cannot be read: {problem}") from problem
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)
