"""How the whole grows with the cluster: N nodes, each a real agent, and 30 pods on each.

`make bench-scale` prints a Markdown table and bars for docs/benchmarks.md, and fails if 5,000 nodes cost more
than 11 times what 500 do. The embedded API server, DNC-RC and the agents are processes of their own; some
hundred agents share one, each with its own watches, journal and socket. Nodes join first; then all pods are
created, and the clock runs until the last one has its IP. What a kubelet does beside that (sandboxes, pod
status) is left out. Machines get slower and faster by the minute, so the smaller sizes run before the largest
and again after it, and their figures are means.
"""

import argparse
import asyncio
import os
import platform
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.apiserver import CRDS, Target, at_once
from subnetes.api.crd import crds
from tests.harness.embedded import Embedded
from tests.harness.processes import Child, start
from tests.harness.requests import Request, requests, writes

SIZES = (100, 500, 1000, 5000)
PODS = 30
LANES = 16
HOSTS = 10  # processes with agents, at every size: what an agent costs depends on how many share a process
JOINING = 32  # agents that start at the same time, in all
PATIENCE = 1800.0
LIMIT = 11.0  # how much more 5,000 nodes may cost than 500
SUBNET = "/apis/acn.azure.com/v1alpha1/namespaces/kube-system/clustersubnets"
NNCS = "nodenetworkconfigs"


@dataclass
class Figures:
    """Of one run, or the means of several; requests and conflicts are counted over all of them."""

    nodes: int
    runs: int = 1
    join: float = 0.0  # seconds until every agent had its network container
    assigned: float = 0.0  # seconds from the first pod's creation until every pod had its IP
    made: Counter[Request] = field(default_factory=Counter)
    resident: dict[str, float] = field(default_factory=dict)  # MB
    busy: dict[str, float] = field(default_factory=dict)  # seconds of CPU
    slowest: float = 0.0  # seconds: the longest ADD

    @property
    def writes(self) -> float:
        return writes(self.made, NNCS) / self.nodes / self.runs

    @property
    def refused(self) -> int:
        return sum(count for (verb, of, _, code), count in self.made.items() if of == NNCS and code >= 400)


class Host:
    """A process with agents; it says when they are ready and when all their pods have IPs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def begin(cls, server: Embedded, folder: Path, first: int, count: int, lanes: int) -> "Host":
        words = [f"--kubeconfig={server.kubeconfig}", f"--folder={folder}", f"--first={first}"]
        words += [f"--count={count}", f"--lanes={lanes}", f"--pods={PODS}"]
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "benchmarks.scale_agents", *words]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))

    async def said(self, word: str) -> list[str]:
        """The rest of the line that begins with this word."""
        assert self.process.stdout
        async for line in self.process.stdout:
            first, *rest = line.decode().split()
            if first == word:
                return rest
        raise RuntimeError(f"a process with agents ended before it said {word}")

    async def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 60)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@contextmanager
def controller(server: Embedded, folder: Path, profile: Path | None) -> Iterator[Child]:
    measured = ["-m", "cProfile", "-o", str(profile / "controller.prof")] if profile else []
    words = ["controller", f"--kubeconfig={server.kubeconfig}", "--lease-duration=60"]
    child = start([sys.executable, *measured, "-m", "subnetes.cli.main", *words], folder / "controller.log")
    try:
        yield child
    finally:
        child.stop(patience=60)


async def measure(nodes: int, profile: Path | None) -> Figures:
    figures, folder = Figures(nodes), Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        with Embedded() as server, controller(server, folder, profile) as rc:
            processes = {"API server": [*server.processes().values()], "DNC-RC": [rc.process.pid]}
            await _run(figures, server, folder, processes)
            if rc.process.poll() is not None:
                raise RuntimeError(f"DNC-RC ended: {rc.tail()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


async def _run(figures: Figures, server: Embedded, folder: Path, processes: dict[str, list[int]]) -> None:
    hosts: list[Host] = []
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {server.token}"}
        target = Target("embedded", server.url, server.token, server.ca_file, server.processes, session)
        connector = aiohttp.TCPConnector(ssl=target.tls(), limit=0)
        target.session = aiohttp.ClientSession(connector=connector, headers=headers)
        try:
            await _declare(target)
            figures.join = await _join(figures.nodes, server, folder, hosts)
            processes["agents"] = [host.process.pid for host in hosts]
            figures.assigned = await _start_pods(figures, target, hosts)
            figures.made = await asyncio.to_thread(requests, server)
            figures.resident = {name: sum(map(resident, pids)) for name, pids in processes.items()}
            figures.busy = {name: sum(map(busy, pids)) for name, pids in processes.items()}
        finally:
            await asyncio.gather(*(host.end() for host in hosts))
            await target.session.close()


async def _declare(target: Target) -> None:
    for each in crds():
        await target.call("POST", CRDS, each)
    subnet = {
        "apiVersion": "acn.azure.com/v1alpha1",
        "kind": "ClusterSubnet",
        "metadata": {"name": "pods", "namespace": "kube-system"},
        "spec": {"addressSpace": ["10.0.0.0/10"]},
    }
    await target.call("POST", SUBNET, subnet)
    while not orjson.loads(await target.call("GET", f"{SUBNET}/pods")).get("status", {}).get("capacity"):
        await asyncio.sleep(0.1)


async def _join(nodes: int, server: Embedded, folder: Path, hosts: list[Host]) -> float:
    shares = [range(nodes * host // HOSTS, nodes * (host + 1) // HOSTS) for host in range(HOSTS)]
    lanes = max(1, JOINING // len(shares))
    started = time.monotonic()
    for share in shares:
        host = await Host.begin(server, folder, share.start, len(share), lanes)
        hosts.append(host)
    await asyncio.gather(*(host.said("ready") for host in hosts))
    return time.monotonic() - started


async def _start_pods(figures: Figures, target: Target, hosts: list[Host]) -> float:
    """All pods of a node after one another, as a rollout would; the last IP ends the clock."""
    path = "/api/v1/namespaces/default/pods"

    async def create(number: int) -> None:
        node, index = divmod(number, PODS)
        await target.call("POST", path, pod(f"n{node}", f"n{node}-{index}"))

    started = time.monotonic()
    done = asyncio.gather(*(host.said("assigned") for host in hosts))
    await at_once(figures.nodes * PODS, LANES, create)
    figures.slowest = max(float(rest[0]) for rest in await done)
    return time.monotonic() - started


def pod(node: str, name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": containers},
    }


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def busy(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mean(runs: list[Figures]) -> Figures:
    """Of runs of one size."""
    return Figures(
        runs[0].nodes,
        len(runs),
        join=statistics.fmean(f.join for f in runs),
        assigned=statistics.fmean(f.assigned for f in runs),
        made=sum((f.made for f in runs), Counter()),
        resident={name: statistics.fmean(f.resident[name] for f in runs) for name in runs[0].resident},
        busy={name: statistics.fmean(f.busy[name] for f in runs) for name in runs[0].busy},
        slowest=max(f.slowest for f in runs),
    )


def table(rows: list[Figures]) -> str:
    """The figures, one column a size."""
    shown = {
        "runs": lambda f: f"{f.runs}",
        "seconds until all nodes had joined": lambda f: f"{f.join:.1f}",
        "seconds from the first pod to the last IP": lambda f: f"{f.assigned:.1f}",
        "pods with an IP a second": lambda f: f"{f.nodes * PODS / f.assigned:.0f}",
        "longest ADD, seconds": lambda f: f"{f.slowest:.1f}",
        "NNC writes a node, all told": lambda f: f"{f.writes:.2f}",
        "of them refused (conflicts), in all": lambda f: f"{f.refused}",
        "API server, MB": lambda f: f"{f.resident['API server']:.0f}",
        "DNC-RC, MB": lambda f: f"{f.resident['DNC-RC']:.0f}",
        "agents, MB each (many in one process)": lambda f: f"{f.resident['agents'] / f.nodes:.2f}",
        "CPU seconds of the API server": lambda f: f"{f.busy['API server']:.1f}",
        "CPU seconds of DNC-RC": lambda f: f"{f.busy['DNC-RC']:.1f}",
        "CPU seconds of all agents": lambda f: f"{f.busy['agents']:.1f}",
    }
    lines = ["| nodes | " + " | ".join(f"{f.nodes:,}" for f in rows) + " |", "| --- |" + " --- |" * len(rows)]
    lines += [f"| {name} | " + " | ".join(map(show, rows)) + " |" for name, show in shown.items()]
    return "\n".join(lines)


def bars(rows: list[Figures], what: str, cost: Callable[[Figures], float], width: int = 50) -> str:
    """The cost a thousand nodes: bars of one length are linear growth."""
    each = {f.nodes: cost(f) / f.nodes * 1000 for f in rows}
    longest = max(each.values())
    lines = [f"{n:>6,} │{'█' * max(1, round(s / longest * width))} {s:.1f}" for n, s in each.items()]
    return "\n".join(["```", f"{what} a thousand nodes with {PODS} pods each", *lines, "```"])


def seconds(figures: Figures) -> float:
    return figures.join + figures.assigned


def work(figures: Figures) -> float:
    return sum(figures.busy.values())


def growth(rows: list[Figures], cost: Callable[[Figures], float]) -> float | None:
    """What 5,000 nodes cost in units of what 500 do."""
    total = {f.nodes: cost(f) for f in rows}
    return total[5000] / total[500] if {500, 5000} <= total.keys() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--profile", type=Path, help="folder for cProfile's figures of DNC-RC")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # with everything that was started
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    runs: dict[int, list[Figures]] = {nodes: [] for nodes in sorted(options.sizes)}
    for nodes in [*runs, *reversed([*runs][:-1])]:
        run = asyncio.run(measure(nodes, options.profile))
        runs[nodes].append(run)
        print(f"{nodes} nodes: {run.join:.1f} + {run.assigned:.1f} s", file=sys.stderr)
    rows = [mean(each) for each in runs.values()]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(table(rows), bars(rows, "seconds", seconds), bars(rows, "CPU seconds", work), sep="\n\n")
    longer, more = growth(rows, seconds), growth(rows, work)
    if longer is None or more is None:
        return 0
    print(f"\n5,000 nodes take {longer:.1f} times the seconds, and {more:.1f} times the CPU, of 500.")
    return int(longer > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
