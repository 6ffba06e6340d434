"""How an HTTP application of the agent is put on a TCP address: for `azure.py` and `web.py`."""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from subnetes.cns.errors import CnsError


class BadAddress(CnsError):
    """An address to listen on is not usable; the text says why."""


def parse(text: str) -> tuple[str, int]:
    """`host:port`, an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address("127.0.0.1" if bare == "localhost" else bare)
        number = int(port)
    except ValueError:
        raise BadAddress(f"{text!r} is not an address to listen on, such as 127.0.0.1:10092") from None
    if not 0 <= number <= 65535:
        raise BadAddress(f"{text!r}: a port is 0 to 65535")
    return bare, number


def is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


@asynccontextmanager
async def listening(application: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve it while inside; the port, which the kernel chooses for 0."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
