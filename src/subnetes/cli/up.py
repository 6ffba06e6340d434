"""`subnetes up`: everything on one machine. Today that is the embedded API server with all CRDs."""

import argparse
import asyncio
import errno
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from subnetes.api.crd import crds
from subnetes.apiserver.server import LEFT_OUT, Config, Server
from subnetes.apiserver.store import Busy
from subnetes.kube.services import stop_on_signals

DEFAULT_FOLDER = Path("~/.subnetes")
DEFAULT_PORT = 7443
NOT_TO_BE_HAD = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


def add_to(commands: Any) -> None:
    command = commands.add_parser("up", help="start everything on this machine, on the embedded API server")
    command.add_argument("--data-dir", type=Path, default=DEFAULT_FOLDER, help=f"default: {DEFAULT_FOLDER}")
    command.add_argument("--ephemeral", action="store_true", help="forget everything at the end")
    command.add_argument(
        "--host", default="127.0.0.1", help="where to listen; beyond loopback only if you say so"
    )
    command.add_argument("--port", type=port, default=DEFAULT_PORT, help=f"0: any; default: {DEFAULT_PORT}")
    command.add_argument("--kubeconfig", type=Path, help="where to write it; default: in the data folder")
    command.set_defaults(run=run)


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"a port is 0 to 65535, not {number}")
    return number


def run(options: argparse.Namespace) -> int:
    config = Config(
        data=None if options.ephemeral else options.data_dir.expanduser(),
        host=options.host,
        port=options.port,
        kubeconfig=options.kubeconfig,
        crds=crds(),
    )
    try:
        asyncio.run(_serve(config))
    except (Busy, OSError) as problem:
        print(f"subnetes up: {explained(problem, config)}", file=sys.stderr)
        return 1
    return 0


def explained(problem: Exception, config: Config) -> str:
    """The problem in the user's terms; one without a file name is the socket's."""
    if isinstance(problem, OSError) and problem.errno in NOT_TO_BE_HAD and problem.filename is None:
        why = os.strerror(problem.errno).lower()
        return f"cannot listen on {config.host}:{config.port}: {why}; see --host and --port"
    return str(problem)


async def _serve(config: Config) -> None:
    stop = stop_on_signals()
    async with Server(config) as server:
        print(greeting(server), flush=True)
        await stop.wait()
        print("subnetes is stopping", flush=True)


def greeting(server: Server) -> str:
    """What this server is not, and the lines to paste."""
    return "\n".join(
        [
            "the embedded API server leaves out:",
            *(f"  - {text}" for text in LEFT_OUT),
            f"subnetes is ready: {server.url} (Ctrl-C stops it)",
            f"  use it:  export KUBECONFIG={shlex.quote(str(server.kubeconfig))}",
            "  then:    kubectl explain clustersubnet.spec",
        ]
    )
