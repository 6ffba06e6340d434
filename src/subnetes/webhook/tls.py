"""The TLS of a server whose certificate changes while it serves.

OpenSSL takes a certificate into a context that is in use: a handshake that begins later sees the new one, and
connections that are open keep theirs. A pair that does not fit together would leave such a context with
neither, so it is tried on another one first.
"""

import asyncio
import logging
import os
import ssl

from subnetes.webhook.certificates import Pair, expiry_of
from subnetes.webhook.metrics import WebhookMetrics

log = logging.getLogger(__name__)


class BadPair(ValueError):
    """A certificate and a key that cannot be used; the text says why."""


class Shown:
    """The context of the server, and what it shows."""

    def __init__(self, metrics: WebhookMetrics) -> None:
        self.context = _context()
        self.certified = asyncio.Event()
        self._metrics = metrics
        self.pair: Pair | None = None

    def show(self, pair: Pair) -> None:
        """From the next handshake on; BadPair leaves everything as it was."""
        if pair == self.pair:
            return
        check(pair)
        _load(self.context, pair)
        expires = expiry_of(pair.certificate)
        self.pair = pair
        self._metrics.certificate(expires.timestamp())
        self.certified.set()
        log.info("a certificate is shown that expires at %s", expires.isoformat())


def check(pair: Pair) -> None:
    """BadPair if it cannot be shown."""
    _load(_context(), pair)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """OpenSSL takes a key only from a file, so it is one in memory that nobody else can open."""
    handle = os.memfd_create("subnetes-pair")
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(pair.certificate + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    except (ssl.SSLError, OSError) as problem:
        raise BadPair(f"the certificate and the key cannot be used: {problem}") from problem
    finally:
        os.close(handle)
