"""`subnetes controller`: DNC-RC, the request controllers, beside any Kubernetes API server."""

import argparse
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.cli.seconds import seconds
from subnetes.controllers import migration, web
from subnetes.controllers.migration import Pace
from subnetes.controllers.process import COMPONENT, OpenAllocator, Settings, dnc_rc, in_memory
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.errors import ApiError
from subnetes.kube.metrics import Metrics
from subnetes.kube.services import Service, stop_on_signals
from subnetes.kube.services import run as run_services
from subnetes.kube.sources import find_credentials

MEMORY = "memory"
_SQLITE = "sqlite:"


def add_to(commands: Any) -> None:
    command = commands.add_parser("controller", help="run the request controllers (DNC-RC) of a cluster")
    command.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's")
    command.add_argument("--cluster", default="local", help="its name in a shared DNC; default: local")
    command.add_argument(
        "--dnc",
        default=MEMORY,
        help="memory (default: the API server is the record), sqlite:PATH, or a URL of `subnetes dnc`",
    )
    command.add_argument("--dnc-token-file", type=Path, help="the cluster's token at a DNC with a URL")
    command.add_argument("--dnc-ca-file", type=Path, help="the authority of a DNC with an https URL")
    command.add_argument(
        "--identity", default=f"{socket.gethostname()}-{os.getpid()}", help="of this replica"
    )
    command.add_argument("--namespace", default="kube-system", help="of NNCs, ClusterSubnets and the lease")
    command.add_argument(
        "--node-grace",
        type=seconds,
        default=120.0,
        help="seconds that a lost node keeps its IPs; default: 120",
    )
    command.add_argument(
        "--migration-rate",
        type=_rate,
        default=Pace.rate,
        help=f"stored NNCs that are rewritten a second, when they must be; default: {Pace.rate:g}",
    )
    command.add_argument(
        "--migration-settle",
        type=seconds,
        default=Pace.settle,
        help=f"seconds for all API servers to follow a changed CRD; default: {Pace.settle:g}",
    )
    command.add_argument("--lease-duration", type=int, default=15, help="seconds; default: 15")
    command.add_argument("--renew-deadline", type=float, help="seconds; default: two thirds of the duration")
    command.add_argument("--retry-period", type=float, help="seconds; default: a fifth of the deadline")
    command.add_argument("--listen", help="HOST:PORT for health, metrics and /debug; default: nowhere")
    command.add_argument("--verbose", action="store_true", help="say more in the log")
    command.set_defaults(run=run)


def _rate(text: str) -> float:
    rate = seconds(text)
    if rate == 0:
        raise argparse.ArgumentTypeError("a rate of 0 never ends")
    return rate


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger(migration.__name__).setLevel(logging.INFO)  # its progress is for everybody
    try:
        process.run(_serve(options))
    except (ApiError, DncError, OSError, ValueError) as problem:
        print(f"subnetes controller: {problem}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    stop, metrics = stop_on_signals(), Metrics()
    settings = Settings(
        identity=options.identity,
        cluster=options.cluster,
        node_grace=options.node_grace,
        terms=terms_of(options),
        namespace=options.namespace,
        migration=Pace(rate=options.migration_rate, settle=options.migration_settle),
    )
    credentials = find_credentials(options.kubeconfig)
    async with Client(credentials, field_manager=COMPONENT, user_agent=COMPONENT) as client:
        controllers = dnc_rc(client, allocator_of(options), settings, metrics)
        services: list[Service] = [controllers]
        if options.listen:
            services.insert(0, web.Listener(options.listen, controllers, metrics))
        process.seldom_collected()
        await run_services(*services, stop=stop)


def terms_of(options: argparse.Namespace) -> Terms:
    deadline = options.renew_deadline or options.lease_duration * 2 / 3
    return Terms(options.lease_duration, deadline, options.retry_period or deadline / 5)


def allocator_of(options: argparse.Namespace) -> OpenAllocator:
    where: str = options.dnc
    if where == MEMORY:
        return in_memory
    if where.startswith(_SQLITE):
        return lambda: _on_disk(where.removeprefix(_SQLITE))
    if where.startswith(("http://", "https://")):
        return lambda: _remote(options)
    raise ValueError(f"--dnc {where}: give memory, sqlite:PATH, http://... or https://...")


async def _on_disk(path: str) -> Allocator:
    return SqlAllocator(await open_sqlite(path))


def _remote(options: argparse.Namespace) -> Allocator:
    from subnetes.dnc.http_client import HttpAllocator

    token = options.dnc_token_file.read_text().strip() if options.dnc_token_file else ""
    return HttpAllocator(options.dnc, token, options.cluster, options.dnc_ca_file)
