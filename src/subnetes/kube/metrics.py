"""What the controller machinery measures, under names that operators of Kubernetes have dashboards for.

One `Metrics` a process, on the registry that the composition root serves; nothing here is global.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry, counts for nobody."""
        self.registry = registry if registry is not None else CollectorRegistry()
        self._queues()
        self._informers()
        self._events()

    def _queues(self) -> None:
        label, to = ["name"], self.registry
        self.depth = Gauge("workqueue_depth", "Keys that wait for a worker", label, registry=to)
        self.adds = Counter("workqueue_adds_total", "Keys added", label, registry=to)
        self.retries = Counter("workqueue_retries_total", "Keys to repeat after an error", label, registry=to)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key was ready before a worker took it",
            label,
            buckets=_SECONDS,
            registry=to,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "How long a worker took for a key",
            label,
            buckets=_SECONDS,
            registry=to,
        )
        self.reconciles = Counter(
            "controller_reconcile_total",
            "Reconciles, by result",
            ["controller", "result"],
            registry=to,
        )
        self.workers = Gauge("controller_active_workers", "Keys in process", ["controller"], registry=to)

    def _informers(self) -> None:
        label, to = ["informer"], self.registry
        self.objects = Gauge("informer_store_objects", "Objects in the local store", label, registry=to)
        self.lists = Counter("informer_lists_total", "Lists of the whole collection", label, registry=to)
        self.informer_failures = Counter(
            "informer_failures_total", "Lists and watches that failed", ["informer", "error"], registry=to
        )
        self.silence = Gauge(
            "informer_last_contact_seconds", "Age of the last word from the API server", label, registry=to
        )

    def _events(self) -> None:
        to = self.registry
        self.events_sent = Counter("events_sent_total", "Events written", registry=to)
        self.events_dropped = Counter("events_dropped_total", "Events not written", ["why"], registry=to)

    def watch_informer(self, name: str, objects: Callable[[], float], silence: Callable[[], float]) -> None:
        """Have both gauges read at the moment of a scrape."""
        self.objects.labels(name).set_function(objects)
        self.silence.labels(name).set_function(silence)
