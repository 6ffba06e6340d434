"""What the webhook measures, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from subnetes.webhook.review import Answer

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class WebhookMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        reviews = Counter("webhook_reviews_total", "Reviews, by result", ["result"], registry=registry)
        self._succeeded, self._failed = reviews.labels("Success"), reviews.labels("Failure")
        self._objects = Counter("webhook_objects_total", "Objects converted one by one", registry=registry)
        self._bulk = Counter("webhook_bulk_reviews_total", "Reviews converted apart", registry=registry)
        self._seconds = Histogram(
            "webhook_review_seconds",
            "How long a review took that is not converted apart",
            buckets=_SECONDS,
            registry=registry,
        )
        self._expiry = Gauge(
            "webhook_certificate_expiry_seconds", "Unix time when the certificate expires", registry=registry
        )
        self._swaps = Counter(
            "webhook_certificate_changes_total", "Certificates put into service", registry=registry
        )

    def reviewed(self, answer: Answer, seconds: float) -> None:
        (self._succeeded if answer.result == "Success" else self._failed).inc()
        self._objects.inc(answer.objects)
        self._seconds.observe(seconds)

    def bulk(self) -> None:
        self._bulk.inc()

    def certificate(self, expires: float) -> None:
        self._swaps.inc()
        self._expiry.set(expires)
