"""What the node agent measures, under the names that operators of Azure CNS already chart.

`Metrics` are counted as things happen; `PoolCollector` reads the pools at the moment of a scrape, so that
no gauge can be out of date. One of each a process, on the registry that the composition root serves;
nothing here is global.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_LABELS = ("subnet", "subnet_cidr", "podnet_arm_id")
_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry, counts for nobody."""
        self.registry = registry if registry is not None else CollectorRegistry()
        self.assignment_seconds = self._histogram("ip_assignment_latency_seconds", "From an ADD to its IP")
        self.grow_seconds = self._histogram("ip_pool_inc_latency_seconds", "From asking for IPs to them")
        self.shrink_seconds = self._histogram("ip_pool_dec_latency_seconds", "From letting IPs go to the end")
        self.request_seconds = Histogram(
            "http_request_latency_seconds",
            "Requests of Azure's contract, by route and HTTP method",
            ["url", "verb", "cns_return_code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._exhausted = Gauge(
            "cx_ipam_subnet_exhaustion_state", "1: the subnet is exhausted", _LABELS, registry=self.registry
        )
        self._exhaustions = Counter(
            "cx_ipam_subnet_exhaustion_state_count",
            "How often a subnet became exhausted, or recovered",
            [*_LABELS, "subnet_exhaustion_state"],
            registry=self.registry,
        )
        self._known: dict[tuple[str, str, str], bool] = {}

    def exhaustion(self, subnet: str, cidr: str, exhausted: bool, network: str = "") -> None:
        """The state as it is now; a change of it is counted."""
        labels = (subnet, cidr, network)
        self._exhausted.labels(*labels).set(exhausted)
        if self._known.get(labels, False) != exhausted:
            self._exhaustions.labels(*labels, int(exhausted)).inc()
        self._known[labels] = exhausted

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self.registry)


@dataclass(frozen=True, slots=True)
class Figures:
    """One network container at one moment."""

    subnet: str
    subnet_cidr: str
    network: str
    assigned: int
    available: int
    pending_programming: int
    pending_release: int
    requested: int
    batch: int
    maximum: int

    @property
    def secondary(self) -> int:
        return self.assigned + self.available + self.pending_programming + self.pending_release


# name, what it says, how it is read
_GAUGES: tuple[tuple[str, str, Callable[[Figures], int]], ...] = (
    ("pod_allocated_ips", "IPs that pods of this node hold", lambda f: f.assigned),
    ("available_ips", "IPs that a pod of this node can have now", lambda f: f.available),
    ("batch_size", "The batch by which the pool grows and shrinks", lambda f: f.batch),
    ("current_available_ips", "IPs of this node that no pod holds", lambda f: f.secondary - f.assigned),
    ("expect_available_ips", "The same, once the request is met", lambda f: f.requested - f.assigned),
    ("max_ips", "IPs that the node may have at most", lambda f: f.maximum),
    ("pending_programming_ips", "IPs that are granted and not usable yet", lambda f: f.pending_programming),
    ("pending_release_ips", "IPs that the node let go", lambda f: f.pending_release),
    ("primary_ips", "IPs of the node itself", lambda _: 1),
    ("requested_ips", "IPs that the node asks for", lambda f: f.requested),
    ("secondary_ips", "IPs of the node for pods", lambda f: f.secondary),
    ("total_ips", "All IPs of the node, its own included", lambda f: f.secondary + 1),
)


class PoolCollector(Collector):
    """To be registered once; `figures` is called at each scrape."""

    def __init__(self, figures: Callable[[], Iterable[Figures]]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[GaugeMetricFamily]:
        pools = list(self._figures())
        for name, text, read in _GAUGES:
            family = GaugeMetricFamily(f"cx_ipam_{name}", text, labels=_LABELS)
            for pool in pools:
                family.add_metric((pool.subnet, pool.subnet_cidr, pool.network), read(pool))
            yield family
