"""What the server counts, under the real kube-apiserver's names and labels, so that both are read alike.

`handlers/app.py` counts each request for a resource when it is over; so a watch is counted at its end. What
asks for no resource (discovery, health) or was let in by nobody is not counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

NAME = "apiserver_request_total"
LABELS = (
    "code",
    "component",
    "dry_run",
    "group",
    "resource",
    "scope",
    "subresource",
    "verb",
    "version",
)
_HELP = (
    "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, "
    "component, and HTTP response code."
)


class Metrics(Collector):
    def __init__(self) -> None:
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, labels: Mapping[str, str]) -> None:
        """Count one request; labels that are not given are empty."""
        self._requests[tuple(labels.get(label, "") for label in LABELS)] += 1

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(NAME, _HELP, labels=LABELS)
        for labels, count in self._requests.items():
            family.add_metric(labels, count)
        return [family]

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)
