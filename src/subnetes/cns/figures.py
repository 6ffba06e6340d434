"""What a scrape reads of the agent: its pools at that moment, and how often something had to be mended."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from subnetes.cns.containers import Container
from subnetes.cns.ipam import Counts, Ipam
from subnetes.cns.metrics import Figures, Metrics
from subnetes.cns.node import Node
from subnetes.ipam.pool import State


def figures(node: Node) -> list[Figures]:
    return [_figures(node, nc) for nc in node.ipam.containers]


def _figures(node: Node, nc: Container) -> Figures:
    pool, monitor = node.ipam.pool, node.monitor
    need = monitor.needs.get(nc.id)
    return Figures(
        subnet=nc.subnet,
        subnet_cidr=nc.cidr,
        network=nc.network,
        assigned=pool.count(nc.id, State.ASSIGNED),
        available=pool.count(nc.id, State.AVAILABLE),
        pending_programming=pool.count(nc.id, State.PENDING_PROGRAMMING),
        pending_release=pool.count(nc.id, State.PENDING_RELEASE),
        requested=monitor.asked.targets.get(nc.id, 0),
        batch=need.scaler.batch if need is not None else 0,
        maximum=monitor.maximum,
    )


class CountsCollector(Collector):
    """To be registered once."""

    def __init__(self, ipam: Ipam) -> None:
        self._ipam = ipam

    def collect(self) -> Iterator[CounterMetricFamily]:
        counts = self._ipam.counts
        drift = CounterMetricFamily(
            "subnetes_pool_drift", "Times that the pool and the NodeNetworkConfig differed", labels=["kind"]
        )
        for kind, count in counts.drift.items():
            drift.add_metric([kind], count)
        yield drift
        yield from map(_counter, _plain(counts))


def _plain(counts: Counts) -> Iterable[tuple[str, str, int]]:
    return (
        ("subnetes_swept", "Attachments released because their sandbox was gone", counts.swept),
        ("subnetes_stale", "Attachments released because their pod got another sandbox", counts.stale),
        ("subnetes_starved", "ADDs that no IP came for in time", counts.starved),
    )


def _counter(row: tuple[str, str, int]) -> CounterMetricFamily:
    name, text, value = row
    return CounterMetricFamily(name, text, value=value)


class Latency:
    """How long requests take to be met: from the write to the status that shows it."""

    def __init__(self, node: Node, metrics: Metrics) -> None:
        self._node = node
        self._metrics = metrics
        self._asked_at: float | None = None
        self._let_go_at: float | None = None

    def wrote(self, now: float) -> None:
        if self._lacks() and self._asked_at is None:
            self._asked_at = now
        if self._node.monitor.asked.released and self._let_go_at is None:
            self._let_go_at = now

    def observed(self, now: float) -> None:
        pool = self._node.ipam.pool
        if self._asked_at is not None and not self._lacks():
            self._metrics.grow_seconds.observe(now - self._asked_at)
            self._asked_at = None
        if self._let_go_at is not None and not any(ip.state is State.PENDING_RELEASE for ip in pool):
            self._metrics.shrink_seconds.observe(now - self._let_go_at)
            self._let_go_at = None

    def _lacks(self) -> bool:
        pool, targets = self._node.ipam.pool, self._node.monitor.asked.targets
        return any(len(pool.of_nc(nc)) < target for nc, target in targets.items())
