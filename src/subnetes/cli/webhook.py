"""`subnetes webhook`: shows NodeNetworkConfigs in either version to the API server, beside any Kubernetes.

subnetes webhook                                       certificates of its own, shared through a Secret
subnetes webhook --tls-cert crt --tls-key key          certificates from files, re-read when they change
"""

import argparse
import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.api import names
from subnetes.cli.seconds import seconds
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError
from subnetes.kube.metrics import Metrics
from subnetes.kube.services import Service, stop_on_signals
from subnetes.kube.services import run as run_services
from subnetes.kube.sources import find_credentials
from subnetes.webhook import authority, server
from subnetes.webhook.certificates import Plan
from subnetes.webhook.files import Files, Injection, Paths
from subnetes.webhook.hosts import normal
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.page import Page
from subnetes.webhook.tls import Shown

COMPONENT = "subnetes-webhook"
DEFAULT_ADDRESS = "0.0.0.0:9443"
DEFAULT_HOST = f"{COMPONENT}.{names.NAMESPACE}.svc"
_ENDING = 19.0  # seconds, beside the drain, for what is under way when asked to stop


def add_to(commands: Any) -> None:
    command = commands.add_parser("webhook", help="convert NodeNetworkConfigs between their versions")
    command.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's")
    command.add_argument(
        "--address", default=DEFAULT_ADDRESS, help=f"HOST:PORT for reviews; default: {DEFAULT_ADDRESS}"
    )
    command.add_argument("--listen", help="HOST:PORT for health and metrics (plain HTTP); default: nowhere")
    command.add_argument(
        "--hosts",
        default=DEFAULT_HOST,
        help=f"names, with commas between, that the API server calls us by"
        f" and our certificate is for; default: {DEFAULT_HOST}",
    )
    command.add_argument("--namespace", default=names.NAMESPACE, help="of the Secret with our certificates")
    command.add_argument("--tls-cert", type=Path, help="a certificate (PEM) instead of our own")
    command.add_argument("--tls-key", type=Path, help="its key (PEM)")
    command.add_argument("--ca-file", type=Path, help="its authority (PEM), to be written to the CRD")
    command.add_argument(
        "--drain",
        type=seconds,
        default=5.0,
        help="seconds to serve on, not ready, when asked to stop; default: 5",
    )
    lives = Plan()
    for word, help_, value in (
        ("--ca-lifetime", "our own authority's life", lives.authority),
        ("--cert-lifetime", "our own certificate's life", lives.leaf),
        ("--ca-overlap", "how long a new authority is trusted before it signs", lives.overlap),
    ):
        shown = value.total_seconds()
        command.add_argument(
            word, type=seconds, default=shown, help=f"seconds of {help_}; default: {shown:.0f}"
        )
    command.add_argument("--verbose", action="store_true", help="say more in the log")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        asyncio.run(_serve(options))
    except (ApiError, OSError, ValueError) as problem:
        print(f"subnetes webhook: {problem}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    stop, metrics = stop_on_signals(), Metrics()
    hosts = hosts_of(options.hosts)
    host, port = address_of("--address", options.address)
    measured = WebhookMetrics(metrics.registry)
    shown = Shown(measured)
    settings = server.Settings(host, port, drain=options.drain)
    async with AsyncExitStack() as stack:
        services = await _certificates(options, stack, shown, hosts, metrics)
        doors = [server.Server(settings, shown.context, shown.certified, measured)]
        page = None
        if options.listen:
            page = Page(*address_of("--listen", options.listen), doors[0].ready, metrics.registry)
            services.append(page)
        process.seldom_collected()
        announcing = asyncio.create_task(_announce(doors[0], page))
        try:
            await run_services(*services, *doors, stop=stop, patience=options.drain + _ENDING)
        finally:
            announcing.cancel()


async def _certificates(
    options: argparse.Namespace, stack: AsyncExitStack, shown: Shown, hosts: list[str], metrics: Metrics
) -> list[Service]:
    """What keeps the certificate good."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ValueError("--tls-cert and --tls-key go together")
    if options.ca_file and not options.tls_cert:
        raise ValueError("--ca-file goes with --tls-cert and --tls-key")
    if options.tls_cert and not options.ca_file:
        return [Files(Paths(options.tls_cert, options.tls_key), shown)]
    credentials = find_credentials(options.kubeconfig)
    client = Client(credentials, field_manager=COMPONENT, user_agent=COMPONENT)
    await stack.enter_async_context(client)
    if options.tls_cert:
        injection = Injection(client, hosts, metrics)
        paths = Paths(options.tls_cert, options.tls_key, options.ca_file)
        return [injection.informer, Files(paths, shown, injection)]
    settings = authority.Settings(hosts, plan_of(options), options.namespace)
    own = authority.Authority(client, shown, settings, metrics)
    return [*own.informers, own]


def plan_of(options: argparse.Namespace) -> Plan:
    lives = (options.ca_lifetime, options.cert_lifetime, options.ca_overlap)
    return Plan(*(timedelta(seconds=each) for each in lives))


def hosts_of(text: str) -> list[str]:
    try:
        return [normal(each.strip()) for each in text.split(",")]
    except ValueError as problem:
        raise ValueError(f"--hosts: {problem}") from problem


def address_of(word: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{word} is HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


async def _announce(door: server.Server, page: Page | None) -> None:
    """For whoever waits for it, and to tell a port that the kernel chose."""
    where = await door.url
    others = f" (health and metrics: {await page.url})" if page else ""
    print(f"subnetes webhook is ready: {where}{server.PATH}{others}", flush=True)
