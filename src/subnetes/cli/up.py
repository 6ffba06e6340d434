"""`subnetes up`: everything on one machine.

One process: the embedded API server with all CRDs, DNC-RC with an allocator in memory (the API server holds
the record), a sample subnet, and simulated nodes, each a real agent with its own socket. The data folder
keeps the objects and what the nodes' machines would keep.
"""

import argparse
import asyncio
import errno
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.api.crd import crds
from subnetes.apiserver.server import LEFT_OUT, Config, Server
from subnetes.apiserver.store import Busy
from subnetes.cli.playground import Playground
from subnetes.kube.services import run as run_services
from subnetes.kube.services import stop_on_signals
from subnetes.simulation.node import PathTooLong

DEFAULT_FOLDER = Path("~/.subnetes")
DEFAULT_PORT = 7443
DEFAULT_NODES = 3
MOST_NODES = 1000
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
    command.add_argument(
        "--nodes", type=node_count, default=DEFAULT_NODES, help=f"simulated nodes; default: {DEFAULT_NODES}"
    )
    command.set_defaults(run=run)


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"a port is 0 to 65535, not {number}")
    return number


def node_count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"0 to {MOST_NODES} nodes, not {number}")
    return number


def run(options: argparse.Namespace) -> int:
    with _folder(options) as folder:
        config = Config(
            data=None if options.ephemeral else folder,
            host=options.host,
            port=options.port,
            kubeconfig=options.kubeconfig,
            crds=crds(),
        )
        try:
            process.run(_serve(config, folder, options.nodes))
        except (Busy, OSError, PathTooLong) as problem:
            print(f"subnetes up: {explained(problem, config)}", file=sys.stderr)
            return 1
    return 0


@contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """Where the nodes keep their state: the data folder, or one that is gone at the end."""
    if not options.ephemeral:
        yield options.data_dir.expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="subnetes-nodes-") as folder:
        yield Path(folder)


def explained(problem: Exception, config: Config) -> str:
    """The problem in the user's terms; one without a file name is the socket's."""
    if isinstance(problem, OSError) and problem.errno in NOT_TO_BE_HAD and problem.filename is None:
        why = os.strerror(problem.errno).lower()
        return f"cannot listen on {config.host}:{config.port}: {why}; see --host and --port"
    if isinstance(problem, PathTooLong):
        return f"{problem}; see --data-dir"
    return str(problem)


async def _serve(config: Config, folder: Path, nodes: int) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server(config))
        stack.enter_context(_log_file(folder / "log"))
        playground = await stack.enter_async_context(Playground(server.kubeconfig, folder / "nodes", nodes))
        process.seldom_collected()
        running = asyncio.create_task(run_services(*playground.services, stop=stop))
        await _first(playground.ready(), running)
        if not running.done() and not stop.is_set():
            print(greeting(server), flush=True)
            await stop.wait()
        print("subnetes is stopping", flush=True)
        await running


async def _first(ready: Any, running: "asyncio.Task[None]") -> None:
    """Until the nodes serve, or everything has ended before."""
    waiting = asyncio.ensure_future(ready)
    await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """What the parts have to say goes to a file: the terminal is for what the user asked."""
    handler = logging.FileHandler(path, mode="w")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("subnetes")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def greeting(server: Server) -> str:
    """What this server is not, and the lines to paste."""
    return "\n".join(
        [
            "the embedded API server leaves out:",
            *(f"  - {text}" for text in LEFT_OUT),
            f"subnetes is ready: {server.url} (Ctrl-C stops it)",
            f"  use it:  export KUBECONFIG={shlex.quote(str(server.kubeconfig))}",
            "  then:    kubectl explain clustersubnet.spec",
            "  see:     subnetes status",
            "  try:     subnetes demo burst --pods 200",
        ]
    )
