"""`subnetes agent`: CNS, the agent that runs on every node."""

import argparse
import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

from subnetes import process
from subnetes.cns.agent import Agent, AgentConfig
from subnetes.cns.endpoint import EndpointError
from subnetes.cns.errors import CnsError
from subnetes.cns.sweep import CONTAINERD, ContainerdSandboxes
from subnetes.kube import services
from subnetes.kube.client import Client
from subnetes.kube.errors import CredentialsError
from subnetes.kube.sources import find_credentials

SOCKET = Path("/run/subnetes/cns.sock")
STATE = Path("/var/lib/subnetes/cns")
LISTEN = "127.0.0.1:10092"
LONGEST_WAIT = 50.0
AZURE = "127.0.0.1:10090"


def add_to(commands: Any) -> None:
    command = commands.add_parser("agent", help="run the node agent: the node's IP pool, for the CNI plugin")
    node = os.environ.get("NODE_NAME") or platform.node().lower()
    command.add_argument("--node-name", default=node, help="default: $NODE_NAME, else the host's name")
    command.add_argument("--kubeconfig", type=Path, help="default: as kubectl, else the service account")
    command.add_argument("--socket", type=Path, default=SOCKET, help=f"for the plugin; default: {SOCKET}")
    command.add_argument("--state-dir", type=Path, default=STATE, help=f"for the journal; default: {STATE}")
    command.add_argument(
        "--wait", type=wait, default=10.0, help="how long an ADD waits for an IP, at most 50 s; default: 10 s"
    )
    command.add_argument(
        "--shrink-after", type=seconds, default=60.0, help="how long idle IPs are kept; default: 60 s"
    )
    command.add_argument(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help=f"health, metrics; '': none; default: {LISTEN}",
    )
    command.add_argument(
        "--azure-api",
        nargs="?",
        const=AZURE,
        metavar="HOST:PORT",
        help=f"serve Azure CNS's contract, without authentication, at {AZURE} or the address given",
    )
    command.add_argument(
        "--containerd-root",
        type=Path,
        default=CONTAINERD,
        help=f"where containerd says which sandboxes run, if it does; default: {CONTAINERD}",
    )
    command.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    command.set_defaults(run=run)


def seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"from 0 to 3600 seconds, not {text}")
    return number


def wait(text: str) -> float:
    """The plugin waits a minute for its answer."""
    number = seconds(text)
    if number > LONGEST_WAIT:
        raise argparse.ArgumentTypeError(f"at most {LONGEST_WAIT:g} seconds, not {text}")
    return number


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        process.run(_serve(options))
    except (CnsError, EndpointError, CredentialsError, OSError) as problem:
        print(f"subnetes agent: {problem}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    config = AgentConfig(
        node=options.node_name,
        socket=options.socket,
        state=options.state_dir,
        wait=options.wait,
        shrink_after=options.shrink_after,
        listen=options.listen or None,
        azure=options.azure_api,
    )
    async with Client(
        find_credentials(options.kubeconfig), field_manager="subnetes-agent", user_agent="subnetes-cns"
    ) as client:
        agent = Agent(config, client, sandboxes=ContainerdSandboxes(options.containerd_root))
        process.seldom_collected()
        await services.run(agent, stop=services.stop_on_signals())
