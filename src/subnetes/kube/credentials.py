"""Where an API server is and how we prove who we are, as plain values.

`kubeconfig.py` makes them by parsing, `sources.py` by looking around; `identity.py` lives by them: it reads
the files, runs the plugin and hands the transport what it needs now. A `Path` is read again when it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Pem = bytes | Path


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    certificate: Pem
    key: Pem


@dataclass(frozen=True, slots=True)
class Tls:
    """Without an authority the system's are trusted; `server_name` is checked instead of the URL's host."""

    authority: Pem | None = None
    client: ClientCertificate | None = None
    server_name: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Token:
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenFile:
    path: Path


@dataclass(frozen=True, slots=True)
class Basic:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential (client.authentication.k8s.io, v1 or v1beta1)."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    cluster_info: Mapping[str, Any] | None = None
    install_hint: str = ""


Authentication = Token | TokenFile | Basic | ExecPlugin | None


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `authorization` is the value of its Proxy-Authorization header."""

    url: str
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Everything that a client needs to know of one API server and of itself."""

    server: str
    authentication: Authentication = None
    tls: Tls = field(default_factory=Tls)
    proxy: Proxy | None = None
    impersonation: tuple[tuple[str, str], ...] = ()  # Impersonate-* headers, in order
    namespace: str = "default"
