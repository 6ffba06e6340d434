"""`subnetes dnc`: the allocator as a service of its own, for clusters that share subnets.

    subnetes dnc --database postgresql://user@host/dnc --tokens tokens.csv --tls-cert crt --tls-key key

With one cluster it is not needed: the controller has the same allocator in its process.
"""

import argparse
import asyncio
import ipaddress
import os
import ssl
import sys
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.dnc.errors import DncError
from subnetes.dnc.http_server import serving
from subnetes.dnc.postgres import open_postgres
from subnetes.dnc.sql import Database
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.dnc.tokens import InvalidTokens, Tokens, read_tokens
from subnetes.kube.services import stop_on_signals

DEFAULT_LISTEN = "127.0.0.1:7080"
DATABASE_VARIABLE = "SUBNETES_DNC_DATABASE"  # a password in the arguments would be everybody's to read


class Misused(Exception):
    """What is wrong with the words of the command."""


def add_to(commands: Any) -> None:
    command = commands.add_parser("dnc", help="run the allocator alone, for clusters that share subnets")
    command.add_argument("--listen", default=DEFAULT_LISTEN, help=f"HOST:PORT; default: {DEFAULT_LISTEN}")
    command.add_argument(
        "--database",
        default=os.environ.get(DATABASE_VARIABLE),
        help=f"sqlite:/path, sqlite::memory: or postgresql://...; or in ${DATABASE_VARIABLE}",
    )
    command.add_argument("--tokens", type=Path, required=True, help="lines token,cluster")
    command.add_argument("--tls-cert", type=Path, help="certificate chain (PEM); needed beyond loopback")
    command.add_argument("--tls-key", type=Path, help="its key (PEM)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        asyncio.run(_serve(options))
    except (Misused, InvalidTokens, DncError, OSError) as problem:
        print(f"subnetes dnc: {problem}", file=sys.stderr)
        return 1
    return 0


async def open_database(url: str) -> Database:
    """Misused: no such kind. Unavailable: it cannot be opened."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        return await open_sqlite(rest)
    if kind in ("postgresql", "postgres"):
        return await open_postgres(url)
    raise Misused("--database is sqlite:/path, sqlite::memory: or postgresql://user@host/name")


async def _serve(options: argparse.Namespace) -> None:
    stop = stop_on_signals()
    host, port = _listen(options.listen)
    context = _tls(options.tls_cert, options.tls_key)
    if context is None and not _is_loopback(host):
        raise Misused(f"tokens would cross the network in the clear on {host}: give --tls-cert and --tls-key")
    tokens: Tokens = read_tokens(options.tokens)
    allocator = SqlAllocator(await open_database(options.database or ""))
    try:
        async with serving(allocator, tokens, host, port, context) as url:
            print(f"subnetes dnc is ready: {url} (its API: {url}/openapi.json)", flush=True)
            process.seldom_collected()
            await stop.wait()
            print("subnetes dnc is stopping", flush=True)
    finally:
        await allocator.close()


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise Misused(f"--listen is HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Misused("--tls-cert and --tls-key go together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as problem:
        raise Misused(f"cannot use {certificate} with {key}: {problem}") from problem
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
