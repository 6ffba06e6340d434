"""What a conversion costs: CPU beside a handler that does nothing with the same bytes, and how long it takes.

Run by `make bench-conversion`. The API server sends one object a review, about ten for one apply of an old
client, so the CPU of a review of an NNC with 250 IPs is a promise: at most twice that of an empty handler in
the same server, which decodes and encodes the same bytes with orjson. Both are asked over one TLS connection,
in turn, block by block; a body that begins with a space is for the empty one. Then 5,000 NNCs are converted
one by one, and at last all of them in one review, beside which small ones go on.
"""

import asyncio
import http.client
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson
from prometheus_client import CollectorRegistry

from benchmarks.scale import resident
from subnetes.api.conversion import HUB, OLD, convert
from subnetes.kube.services import run as run_services
from subnetes.kube.services import stop_on_signals
from subnetes.webhook.certificates import Pair
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.review import Answer, answer
from subnetes.webhook.server import PATH, Server, Settings
from subnetes.webhook.tls import Shown
from tests.harness.certificates import Authority
from tests.harness.processes import Child, start
from tests.webhook.world import old_nnc, review

OBJECTS, ADDRESSES = 5000, 250
BLOCKS, BLOCK, WARM_UP = 20, 100, 2  # blocks, reviews a block, blocks that do not count
MOST_OF_EMPTY = 2.0
CONNECTIONS = (1, 8)
EMPTY = b" "
_READY = "ready: "


def switched(body: bytes) -> Answer:
    """The empty handler for a body that begins with a space, the real one for every other."""
    if body.startswith(EMPTY):
        return Answer(200, orjson.dumps(orjson.loads(body)), "Success", 1)
    return answer(body)


async def serve(certificate: Path, key: Path) -> None:
    """The webhook's server with both handlers; the benchmark's other process."""
    metrics = WebhookMetrics(CollectorRegistry())
    shown = Shown(metrics)
    server = Server(Settings("127.0.0.1", 0, drain=0), shown.context, shown.certified, metrics, switched)
    shown.show(Pair(certificate.read_bytes(), key.read_bytes()))
    server.url.add_done_callback(lambda url: print(f"{_READY}{url.result()}", flush=True))
    await run_services(server, stop=stop_on_signals())


class Caller:
    """One connection, kept."""

    def __init__(self, url: str, authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        parts = urlsplit(url)
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, context=context, timeout=300
        )
        self.seconds: list[float] = []

    def call(self, body: bytes) -> int:
        """The size of the answer, which must be good."""
        began = time.perf_counter()
        self._connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        data = response.read()
        self.seconds.append(time.perf_counter() - began)
        if response.status != 200 or b'"Failure"' in data[:400]:
            raise RuntimeError(f"{response.status}: {data[:400]!r}")
        return len(data)

    def close(self) -> None:
        self._connection.close()


@dataclass
class Figures:
    costs: dict[str, tuple[float, float]] = field(default_factory=dict)  # direction: CPU ms of ours, of empty
    latencies: dict[int, tuple[float, float, float]] = field(default_factory=dict)  # p50, p99 ms, a second
    size: float = 0.0  # MB of the one large review
    seconds: float = 0.0
    before: float = 0.0  # MB of the server before it
    server: float = 0.0
    child: float = 0.0
    small: int = 0
    beside: tuple[float, float, float] = (0.0, 0.0, 0.0)  # p50, p99, longest, ms


@contextmanager
def server(folder: Path) -> Iterator[tuple[Child, str, Path]]:
    authority = Authority.create(folder / "ca")
    pair = authority.issue("webhook")
    words = [sys.executable, "-m", "benchmarks.conversion", "serve", str(pair.certificate), str(pair.key)]
    child = start(words, folder / "log")
    try:
        deadline = time.monotonic() + 60
        while _READY not in child.tail():
            if child.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server is not ready: {child.tail()}")
            time.sleep(0.02)
        yield child, child.tail().rpartition(_READY)[2].strip(), authority.file
    finally:
        child.stop()


def busy(pid: int) -> float:
    """CPU milliseconds of all its threads so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e6


def cost(caller: Caller, pid: int, body: bytes) -> tuple[float, float]:
    """CPU of one review, of ours and of the empty handler: the median of blocks in turn."""
    ours: list[float] = []
    empty: list[float] = []
    for _ in range(BLOCKS + WARM_UP):
        for sent, found in ((body, ours), (EMPTY + body, empty)):
            before = busy(pid)
            for _ in range(BLOCK):
                caller.call(sent)
            found.append((busy(pid) - before) / BLOCK)
    return statistics.median(ours[WARM_UP:]), statistics.median(empty[WARM_UP:])


def one_by_one(
    url: str, authority: Path, bodies: list[bytes], connections: int
) -> tuple[float, float, float]:
    callers = [Caller(url, authority) for _ in range(connections)]

    def work(number: int) -> None:
        for body in bodies[number::connections]:
            callers[number].call(body)
        callers[number].close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    began = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    lasted = time.perf_counter() - began
    seconds = [each for caller in callers for each in caller.seconds]
    assert len(seconds) == len(bodies)
    return *quantiles(seconds)[:2], len(bodies) / lasted


def quantiles(seconds: list[float]) -> tuple[float, float, float]:
    """p50, p99 and the longest, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3, max(seconds) * 1e3


def all_at_once(figures: Figures, url: str, authority: Path, pid: int, small: bytes) -> None:
    large, other = Caller(url, authority), Caller(url, authority)
    body = review([old_nnc(f"node-{number}", ADDRESSES) for number in range(OBJECTS)])
    figures.size, figures.before = len(body) / 1e6, resident(pid)
    asking = threading.Thread(target=large.call, args=(body,))
    asking.start()
    while asking.is_alive():
        other.call(small)
        figures.server = max(figures.server, resident(pid))
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            figures.child = max(figures.child, _peak(int(each)))
    asking.join()
    (figures.seconds,) = large.seconds
    figures.small, figures.beside = len(other.seconds), quantiles(other.seconds)


def _peak(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0.0


def measure(folder: Path) -> Figures:
    figures = Figures()
    old = old_nnc(addresses=ADDRESSES)
    directions = {
        "v1alpha to v1beta1": review([old], HUB),
        "v1beta1 to v1alpha": review([convert(old, HUB)], OLD),
    }
    with server(folder) as (child, url, authority):
        pid = child.process.pid
        caller = Caller(url, authority)
        for name, body in directions.items():
            figures.costs[name] = cost(caller, pid, body)
        bodies = [review([old_nnc(f"node-{number}", ADDRESSES)]) for number in range(OBJECTS)]
        for connections in CONNECTIONS:
            figures.latencies[connections] = one_by_one(url, authority, bodies, connections)
        all_at_once(figures, url, authority, pid, bodies[0])
    return figures


def report(figures: Figures) -> str:
    rows = ["| what | bound | seen |", "| --- | --- | --- |"]
    for name, (ours, empty) in figures.costs.items():
        rows.append(f"| CPU of a review, {name}, ms | | {ours:.3f} |")
        rows.append(f"| of the empty handler, same bytes, ms | | {empty:.3f} |")
        rows.append(f"| ratio | at most {MOST_OF_EMPTY:.1f} | {ours / empty:.2f} |")
    for connections, (middle, late, rate) in figures.latencies.items():
        words = f"{OBJECTS:,} one by one, {connections} connection{'s' if connections > 1 else ''}"
        rows.append(f"| {words}: p50, p99, ms | | {middle:.2f}, {late:.2f} |")
        rows.append(f"| {words}: reviews a second | | {rate:.0f} |")
    middle, late, longest = figures.beside
    rows += [
        f"| all {OBJECTS:,} in one review of {figures.size:.0f} MB: seconds | | {figures.seconds:.1f} |",
        f"| the server's memory before and at most, MB | | {figures.before:.0f}, {figures.server:.0f} |",
        f"| memory of the process that converts it, at most, MB | | {figures.child:.0f} |",
        f"| small reviews meanwhile | | {figures.small:,} |",
        f"| their p50, p99 and longest, ms | | {middle:.2f}, {late:.2f}, {longest:.1f} |",
    ]
    return "\n".join(rows)


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2]), Path(sys.argv[3])))
        return 0
    with tempfile.TemporaryDirectory(prefix="subnetes-conversion-") as folder:
        figures = measure(Path(folder))
    print(f"NNCs with {ADDRESSES} IPs\n\n{report(figures)}\n")
    kept = all(ours / empty <= MOST_OF_EMPTY for ours, empty in figures.costs.values())
    print("kept" if kept else "BROKEN")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
