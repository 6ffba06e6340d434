"""The embedded API server beside a real kube-apiserver: one run, one client, figures as ratios.

`make bench-apiserver` prints a Markdown table for docs/benchmarks.md. Both servers answer the same requests
of the same client over TLS on loopback, one server at a time; etcd runs without fsync, so that both promise
the same: what was answered survives the death of the process. The client shares the machine's cores with the
server, so ratios understate the difference between servers wherever the client is the slower part.
"""

import argparse
import asyncio
import os
import platform
import ssl
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from subnetes.api.crd import crds
from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded

NNCS = "/apis/acn.azure.com/v1beta1/namespaces/kube-system/nodenetworkconfigs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
IPS = 16


@dataclass(frozen=True)
class Size:
    writes: int = 2000
    listed: int = 5000
    stored: int = 10000
    watchers: int = 1000
    selecting: int = 5000
    rounds: int = 30


@dataclass
class Target:
    """One server under measurement: how to call it, and how much memory its processes hold."""

    name: str
    url: str
    token: str
    ca_file: Path
    processes: Callable[[], dict[str, int]]
    session: aiohttp.ClientSession
    figures: dict[str, float] = field(default_factory=dict)

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> bytes:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": kind}
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            content = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{self.name}: {method} {path}: {answer.status} {content[:500]!r}")
            return content

    def resident(self) -> int:
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.processes().values()
        )
        return pages * os.sysconf("SC_PAGESIZE")

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))


def nnc(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "acn.azure.com/v1beta1",
        "kind": "NodeNetworkConfig",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"secondaryIPs": {f"nc-{name}": IPS}},
    }


def status(name: str, version: int = 1) -> dict[str, Any]:
    ips = [{"address": f"10.241.{i}.{version % 250}", "id": f"{name}-{i}-{version}"} for i in range(IPS)]
    container = {
        "id": f"nc-{name}",
        "assignmentMode": "dynamic",
        "primaryIP": "10.241.0.1",
        "subnetName": "podnet",
        "subnetAddressSpace": "10.241.0.0/16",
        "defaultGateway": "10.241.0.1",
        "nodeIP": "10.240.0.5",
        "secondaryIPs": ips,
        "secondaryIPCount": IPS,
        "version": version,
    }
    return {"status": {"networkContainers": [container], "status": "Updated"}}


async def at_once(count: int, lanes: int, work: Callable[[int], Awaitable[Any]]) -> float:
    """Seconds for work(0..count-1) in so many lanes."""
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            await work(number)

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return time.perf_counter() - started


async def writes(target: Target, size: Size) -> None:
    for lanes in (1, 16):
        prefix = f"w{lanes}-"

        async def create(i: int, prefix: str = prefix) -> None:
            await target.call("POST", NNCS, nnc(f"{prefix}{i}"))

        async def grant(i: int, prefix: str = prefix) -> None:
            name = f"{prefix}{i}"
            await target.call("PATCH", f"{NNCS}/{name}/status", status(name), "application/merge-patch+json")

        seconds = await at_once(size.writes, lanes, create)
        target.figures[f"creates a second, {lanes} at a time"] = size.writes / seconds
        seconds = await at_once(size.writes, lanes, grant)
        target.figures[f"status patches a second, {lanes} at a time"] = size.writes / seconds
    await target.call("DELETE", NNCS)


async def fill(target: Target, count: int) -> None:
    async def one(i: int) -> None:
        name = f"node-{i:05d}"
        await target.call("POST", NNCS, nnc(name))
        await target.call("PATCH", f"{NNCS}/{name}/status", status(name), "application/merge-patch+json")

    await at_once(count, 8, one)


async def lists(target: Target, size: Size) -> None:
    await fill(target, size.listed)
    for title, query in (("consistent", ""), ("from cache (resourceVersion=0)", "?resourceVersion=0")):
        taken = []
        for _ in range(7):
            started = time.perf_counter()
            body = await target.call("GET", NNCS + query)
            taken.append(time.perf_counter() - started)
        assert body.count(b"assignmentMode") >= size.listed
        target.figures[f"list of {size.listed} NNCs, {title}, ms"] = statistics.median(taken) * 1000
    started = time.perf_counter()
    token, seen = "", 0
    while True:
        page = orjson.loads(await target.call("GET", f"{NNCS}?limit=500&continue={token}"))
        seen += len(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == size.listed
    target.figures["the same in pages of 500, ms, decoded"] = (time.perf_counter() - started) * 1000


class Watcher(asyncio.Protocol):
    """One watch on a connection of its own, as an agent has; it only notes when bytes arrive."""

    def __init__(self, target: Target, query: str) -> None:
        self.request = (
            f"GET {NNCS}?watch=1&{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {target.token}\r\nAccept: application/json\r\n\r\n"
        )
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.arrived = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request.encode())

    def data_received(self, data: bytes) -> None:
        if not self.started.done():
            assert b" 200 " in data[:20], data[:300]
            self.started.set_result(None)
        if b'"type":"MODIFIED"' in data:
            self.arrived = time.perf_counter()


@asynccontextmanager
async def watching(target: Target, queries: list[str]) -> AsyncIterator[list[Watcher]]:
    loop, context = asyncio.get_running_loop(), target.tls()
    host, port = target.url.removeprefix("https://").split(":")
    watchers = [Watcher(target, query) for query in queries]
    limit = asyncio.Semaphore(32)

    async def connect(watcher: Watcher) -> None:
        async with limit:
            await loop.create_connection(lambda: watcher, host, int(port), ssl=context)
            await watcher.started

    await asyncio.gather(*map(connect, watchers))
    try:
        yield watchers
    finally:
        for watcher in watchers:
            if watcher.transport is not None:
                watcher.transport.abort()


async def touch(target: Target, name: str, version: int, waiting: list[Watcher]) -> list[float]:
    """One write; the latencies of those who must see it."""
    for watcher in waiting:
        watcher.arrived = 0.0
    started = time.perf_counter()
    body = status(name, version)
    await target.call("PATCH", f"{NNCS}/{name}/status", body, "application/merge-patch+json")
    while not all(watcher.arrived for watcher in waiting):
        await asyncio.sleep(0.001)
        assert time.perf_counter() - started < 30, "a watcher saw nothing"
    return [watcher.arrived - started for watcher in waiting]


async def watches(target: Target, size: Size) -> None:
    revision = orjson.loads(await target.call("GET", f"{NNCS}?limit=1"))["metadata"]["resourceVersion"]
    async with watching(target, [f"resourceVersion={revision}"] * size.watchers) as watchers:
        latencies: list[float] = []
        for i in range(size.rounds):
            latencies += await touch(target, "node-00000", i + 2, watchers)
    target.figures[f"one write to {size.watchers} watchers, p99 ms"] = percentile(latencies, 99)

    selector = "resourceVersion={}&fieldSelector=metadata.name%3Dnode-{:05d}"
    queries = [selector.format(revision, i + 1) for i in range(size.selecting)]
    async with watching(target, queries[:1]) as one:
        alone = [(await touch(target, "node-00001", 100 + i, one))[0] for i in range(size.rounds * 5)]
    async with watching(target, queries) as many:
        among = [
            (await touch(target, f"node-{i + 1:05d}", 300, [many[i]]))[0] for i in range(size.rounds * 5)
        ]
    title = "write to the one watcher that selects it, p99 ms"
    target.figures[f"{title}, 1 watcher"] = percentile(alone, 99)
    target.figures[f"{title}, {size.selecting} watchers"] = percentile(among, 99)


def percentile(seconds: list[float], rank: int) -> float:
    return statistics.quantiles(seconds, n=100)[rank - 1] * 1000


async def memory(target: Target, size: Size) -> None:
    before = target.resident()
    await fill(target, size.stored)
    target.figures["resident when empty, MB"] = before / 1e6
    target.figures[f"resident growth for {size.stored} NNCs, MB"] = (target.resident() - before) / 1e6


async def install(target: Target) -> None:
    for crd in crds():
        await target.call("POST", CRDS, crd)
    for _ in range(200):
        try:
            await target.call("GET", NNCS)
        except RuntimeError:
            await asyncio.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{target.name}: the CRDs are not served")


STEPS = {"memory": memory, "writes": writes, "lists": lists, "watches": watches}


async def measure(server: Embedded | ControlPlane, steps: list[str], size: Size) -> dict[str, float]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(ssl=context, limit=64)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        target = Target(server.name, server.url, server.token, server.ca_file, server.processes, session)
        await install(target)
        for step in steps:
            print(f"  {server.name}: {step}", file=sys.stderr, flush=True)
            await STEPS[step](target, size)
            if step == "memory":
                await target.call("DELETE", NNCS)
    return target.figures


def report(embedded: dict[str, float], real: dict[str, float]) -> str:
    lines = ["| what | embedded | kube-apiserver + etcd | embedded / real |", "| --- | --- | --- | --- |"]
    for title, ours in embedded.items():
        theirs = real[title]
        lines.append(f"| {title} | {ours:,.1f} | {theirs:,.1f} | {ours / theirs:.2f} |")
    return "\n".join(lines)


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if "model name" in line]
    return (
        f"{models[0]}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", nargs="*", choices=[[], *STEPS], help="which; default: all")
    options.add_argument(
        "--small", action="store_true", help="a tenth of everything, to try the benchmark itself"
    )
    chosen = options.parse_args()
    size = Size(200, 500, 1000, 100, 500, 3) if chosen.small else Size()
    steps = chosen.steps or list(STEPS)
    with Embedded() as embedded:
        ours = asyncio.run(measure(embedded, steps, size))
    with ControlPlane(etcd_flags=["--unsafe-no-fsync"]) as real:
        theirs = asyncio.run(measure(real, steps, size))
    print(f"{machine()}\n\n{report(ours, theirs)}")


if __name__ == "__main__":
    main()
