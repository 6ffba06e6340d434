"""`subnetes demo burst` and `subnetes demo clear`: pods on the simulated nodes, and the pools that follow.

Pods are scheduled by us (spec.nodeName), spread over the nodes. Everything shown is read from the API, as any
other client would read it; a spec write is a step of the NNC's generation.
"""

import argparse
import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from subnetes.api.core import Node, Pod
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cli import connection
from subnetes.cli.connection import CannotGoOn
from subnetes.cli.status import PoolRow, pool_rows, pool_table
from subnetes.kube.client import Client
from subnetes.kube.errors import NotFound
from subnetes.kube.informer import Informer
from subnetes.kube.selection import Selection
from subnetes.kube.services import run as run_services
from subnetes.simulation.node import SIMULATED

LABEL = "subnetes.io/demo"
PODS_NAMESPACE = "default"
AT_ONCE = 32  # requests under way
REDRAW = 0.1  # seconds
CLEAR_HINT = "`subnetes demo clear` removes them"


def add_to(commands: Any) -> None:
    demo = commands.add_parser("demo", help="schedule pods on the simulated nodes and watch the pools follow")
    acts = demo.add_subparsers(metavar="ACT", required=True)
    burst = acts.add_parser("burst", help="many pods at once")
    burst.add_argument("--pods", type=positive, default=200, help="how many; default: 200")
    burst.add_argument("--timeout", type=positive, default=60, help="seconds to wait for IPs; default: 60")
    clear = acts.add_parser("clear", help="remove the pods of all bursts")
    for command, work, name in ((burst, _burst, "demo burst"), (clear, _clear, "demo clear")):
        connection.add_kubeconfig(command)
        command.set_defaults(run=_runner(name, work))


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {number}")
    return number


def _runner(name: str, work: connection.Work) -> Callable[[argparse.Namespace], int]:
    return lambda options: connection.run(name, options, work)


class Stage:
    """What the demo sees of the cluster, kept current by informers."""

    def __init__(self, client: Client) -> None:
        self.pods = Informer("pods", Selection(client, Pod, PODS_NAMESPACE, label_selector=LABEL))
        self.nncs = Informer("nncs", Selection(client, NodeNetworkConfig, NAMESPACE))

    def rows(self) -> list[PoolRow]:
        return pool_rows(self.nncs.store, self.pods.store)

    def with_ip(self, burst: str) -> int:
        mine = [pod for pod in self.pods.store if (pod.metadata.labels or {}).get(LABEL) == burst]
        return sum(1 for pod in mine if pod.status.pod_ip)

    def spec_writes(self) -> Counter[str]:
        return Counter({nnc.metadata.name: nnc.metadata.generation or 0 for nnc in self.nncs.store})

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(run_services(self.pods, self.nncs, stop=stop))
        try:
            await self.pods.synced()
            await self.nncs.synced()
            yield
        finally:
            stop.set()
            await running


async def _burst(client: Client, options: argparse.Namespace) -> None:
    console, stage, burst = Console(), Stage(client), uuid.uuid4().hex[:6]
    nodes = await _simulated_nodes(client)
    async with stage.followed():
        before, began = stage.spec_writes(), time.monotonic()
        manifests = [pod_manifest(burst, n, nodes[n % len(nodes)]) for n in range(options.pods)]
        calls = [client.create(each, resource=Pod.resource) for each in manifests]
        reached = await _shown(console, stage, options, calls, lambda: stage.with_ip(burst))
        took, writes = time.monotonic() - began, stage.spec_writes() - before
    if not reached:
        raise CannotGoOn(_short_of(stage, burst, options))
    console.print(
        f"{options.pods} pods on {len(nodes)} nodes had their IPs after {took:.1f} s; "
        f"the agents wrote {writes.total()} requests ({_spread(writes)}). {CLEAR_HINT}"
    )


async def _clear(client: Client, options: argparse.Namespace) -> None:
    console, stage = Console(), Stage(client)
    names = [
        each.metadata.name for each in (await client.list(Pod, PODS_NAMESPACE, label_selector=LABEL)).items
    ]
    if not names:
        console.print("no pods of a burst are there")
        return
    options.pods, options.timeout = len(names), 60
    async with stage.followed():
        calls = [_delete(client, name) for name in names]
        reached = await _shown(console, stage, options, calls, lambda: len(names) - len(stage.pods.store))
    if not reached:
        raise CannotGoOn(f"{len(stage.pods.store)} pods are still there; {connection.HINT}")
    console.print(f"{len(names)} pods are gone; a minute on, idle IPs go back to the subnet")


async def _shown(
    console: Console,
    stage: Stage,
    options: argparse.Namespace,
    calls: list[Coroutine[Any, Any, Any]],
    done: Callable[[], int],
) -> bool:
    """Make the calls and draw until all is done or the time is up; says which."""
    total: int = options.pods
    progress, task = _progress(total)
    deadline = time.monotonic() + options.timeout
    calling = asyncio.ensure_future(_all(calls))
    try:
        with Live(console=console, refresh_per_second=10) as live:
            while True:
                progress.update(task, completed=done())
                live.update(Group(pool_table(stage.rows()), progress))
                if calling.done():
                    calling.result()
                if done() >= total or time.monotonic() > deadline:
                    return done() >= total
                await asyncio.sleep(REDRAW)
    finally:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        if not console.is_terminal:
            console.print()  # the last picture of a Live ends without one


def _progress(total: int) -> tuple[Progress, TaskID]:
    columns = (TextColumn("pods"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns)
    return progress, progress.add_task("pods", total=total)


async def _simulated_nodes(client: Client) -> list[str]:
    found = (await client.list(Node, label_selector=SIMULATED)).items
    if not found:
        raise CannotGoOn("this cluster has no simulated nodes; `subnetes up` starts some")
    return sorted(node.metadata.name for node in found)


def pod_manifest(burst: str, number: int, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"burst-{burst}-{number}",
            "namespace": PODS_NAMESPACE,
            "labels": {LABEL: burst},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


async def _delete(client: Client, name: str) -> None:
    try:
        await client.delete(Pod, name, PODS_NAMESPACE)
    except NotFound:
        return


async def _all(calls: list[Coroutine[Any, Any, Any]]) -> None:
    """Await all, a bounded number at a time; the first error ends it."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(call: Coroutine[Any, Any, Any]) -> None:
        async with gate:
            await call

    await asyncio.gather(*map(one, calls))


def _short_of(stage: Stage, burst: str, options: argparse.Namespace) -> str:
    waiting = [f"{row.node} waits for {row.waiting}" for row in stage.rows() if row.waiting]
    why = "; ".join(waiting) or connection.HINT
    missing = options.pods - stage.with_ip(burst)
    return f"{missing} of {options.pods} pods have no IP after {options.timeout} s: {why}; {CLEAR_HINT}"


def _spread(writes: Counter[str]) -> str:
    return ", ".join(f"{node}: {count}" for node, count in sorted(writes.items()))
