"""How a command that only asks or schedules finds its cluster, and how it says that it cannot."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError, NotFound, Unavailable
from subnetes.kube.sources import default_files, from_kubeconfig

OURS = Path("~/.subnetes/kubeconfig")  # where `subnetes up` writes it
HINT = "is `subnetes up` running?"


class CannotGoOn(Exception):
    """Said to the user in a line; the command ends with 1."""


Work = Callable[[Client, argparse.Namespace], Awaitable[None]]


def add_kubeconfig(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kubeconfig", type=Path, help=f"default: $KUBECONFIG, else {OURS}")


def run(name: str, options: argparse.Namespace, work: Work) -> int:
    """Do the work with a client; whatever stands in its way becomes one line and exit code 1."""
    try:
        asyncio.run(_with_client(options, work))
    except (CannotGoOn, ApiError) as problem:
        print(f"subnetes {name}: {_explained(problem)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _with_client(options: argparse.Namespace, work: Work) -> None:
    files = kubeconfigs(options.kubeconfig, os.environ)
    async with Client(from_kubeconfig(*files), field_manager="subnetes-cli", deadline=15.0) as client:
        await work(client, options)


def kubeconfigs(given: Path | None, environ: Mapping[str, str]) -> list[Path]:
    """The files that say where the cluster is: as told, else the environment's, else our own."""
    if given is not None:
        return [given.expanduser()]
    if environ.get("KUBECONFIG"):
        return default_files(environ)
    ours = OURS.expanduser()
    if not ours.exists():
        raise CannotGoOn(f"no cluster: neither --kubeconfig nor KUBECONFIG is set, and no {OURS}; {HINT}")
    return [ours]


def _explained(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    if isinstance(problem, Unavailable):
        return f"the API server does not answer: {text}; {HINT}"
    if isinstance(problem, NotFound):
        return f"the cluster lacks what is needed: {text}; are the CRDs installed?"
    return text
