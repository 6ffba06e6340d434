"""`subnetes ipam check`: whether DNC, the NNCs, the agents' journals and the pods agree on every IP.

What must never happen is listed in `ipam/invariants.py`. Readings are not of one instant, so a fault is one
that stands in two readings, a moment apart. Exit code: 0 clean, 1 something is wrong, 2 it could not look.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from subnetes.cli.connection import CannotGoOn, add_kubeconfig, kubeconfigs
from subnetes.cli.reading import CannotLook, Dnc, Places, Reader
from subnetes.cns.errors import JournalError
from subnetes.ipam.invariants import check, compare, standing
from subnetes.ipam.moves import State
from subnetes.ipam.snapshot import Snapshot, Violation
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError
from subnetes.kube.sources import from_kubeconfig

CLEAN, WRONG, BLIND = 0, 1, 2
APART = 1.0  # seconds between two readings: what is on its way arrives
MOST_READINGS = 6  # of a cluster in which something new looks wrong in every one


def add_to(commands: Any) -> None:
    group = commands.add_parser("ipam", help="look after the cluster's IPs").add_subparsers(
        metavar="COMMAND", required=True
    )
    command = group.add_parser("check", help="whether everybody agrees on every IP; exits 1 if not")
    add_kubeconfig(command)
    command.add_argument(
        "--dnc",
        default="none",
        metavar="URL",
        help="of `subnetes controller --listen` or `subnetes dnc`; default: none, the NNCs are the record",
    )
    command.add_argument("--dnc-token-file", type=Path, help="the cluster's token at `subnetes dnc`")
    command.add_argument("--dnc-ca-file", type=Path, help="the authority of a DNC with an https URL")
    command.add_argument("--cluster", default="local", help="its name at `subnetes dnc`; default: local")
    command.add_argument(
        "--state-dir",
        action="append",
        default=[],
        type=state,
        metavar="[NODE=]DIR",
        help="the state of an agent on this machine, or a folder of several; may be repeated",
    )
    command.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="URL",
        help="`subnetes agent --listen`: its memory too",
    )
    command.add_argument(
        "--wait-settled",
        type=float,
        metavar="SECONDS",
        help="also look for leaks, and give what is on its way so long to arrive (0: it has arrived)",
    )
    command.add_argument(
        "--apart", type=float, default=APART, metavar="SECONDS", help=f"of two readings; default: {APART:g}"
    )
    command.add_argument("-o", "--output", choices=["text", "json"], default="text")
    command.set_defaults(run=run)


def state(text: str) -> tuple[str, Path]:
    node, named, folder = text.rpartition("=")
    if named and not node:
        raise argparse.ArgumentTypeError(f"{text}: give a folder, or NODE=FOLDER")
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is no folder")
    return node, path


def run(options: argparse.Namespace) -> int:
    try:
        found, last = asyncio.run(_checked(options))
    except (ApiError, CannotGoOn, CannotLook, JournalError, OSError) as problem:
        print(f"subnetes ipam check: cannot look: {' '.join(str(problem).split())}", file=sys.stderr)
        return BLIND
    except KeyboardInterrupt:
        return 130
    print(as_json(found, last) if options.output == "json" else as_text(found, last))
    return WRONG if found else CLEAN


async def _checked(options: argparse.Namespace) -> tuple[list[Violation], Snapshot]:
    token = options.dnc_token_file.read_text().strip() if options.dnc_token_file else ""
    dnc = None
    if options.dnc != "none":
        dnc = Dnc(options.dnc.rstrip("/"), options.cluster, token, options.dnc_ca_file)
    places = Places(dnc, tuple(options.state_dir), tuple(options.agent))
    files = kubeconfigs(options.kubeconfig, os.environ)
    async with Client(from_kubeconfig(*files), field_manager="subnetes-cli", deadline=30.0) as client:
        return await watched(Reader(client, places), options.wait_settled, apart=options.apart)


async def watched(
    reader: Reader, settle: float | None, *, apart: float = APART, clock: Callable[[], float] = time.monotonic
) -> tuple[list[Violation], Snapshot]:
    """Read until what looks wrong has stood in two readings, or is over."""
    deadline = clock() + (settle or 0.0)
    last = await reader.read()
    suspects, readings, found = check(last, settle is not None), 1, list[Violation]()
    while True:
        await asyncio.sleep(apart)
        now, readings = await reader.read(), readings + 1
        present = check(now, settle is not None)
        found = [*compare(last, now), *standing(suspects, present)]
        fresh = len(present) > len(standing(suspects, present))
        last, suspects = now, present
        if found and clock() < deadline:
            continue  # it may still arrive
        if not fresh or readings >= MOST_READINGS:
            return found, last


def as_text(found: Iterable[Violation], snapshot: Snapshot) -> str:
    lines = [str(each) for each in found]
    if lines:
        return "\n".join([*lines, f"{len(lines)} wrong, among {counted(snapshot)}"])
    return f"clean: {counted(snapshot)}"


def counted(snapshot: Snapshot) -> str:
    figures = _figures(snapshot)
    source = "DNC asked" if snapshot.dnc is not None else "DNC not asked"
    return ", ".join(f"{count} {name}" for name, count in figures.items()) + f"; {source}"


def as_json(found: Iterable[Violation], snapshot: Snapshot) -> str:
    answer = {"violations": [asdict(each) for each in found], "counts": _figures(snapshot)}
    return json.dumps(answer, indent=2)


def _figures(snapshot: Snapshot) -> dict[str, int]:
    containers = list(snapshot.statuses())
    used = sum(ip.state is State.ASSIGNED for pool in snapshot.pools for ip in pool.journal)
    return {
        "nodes": len(snapshot.configs),
        "network containers": len(containers),
        "secondary IPs": sum(len(nc.secondary) for nc in containers),
        "journals": len(snapshot.pools),
        "assigned there": used,
        "pods": len(snapshot.pods or ()),
    }
