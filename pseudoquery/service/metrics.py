"""Metrics for Prometheus. They hold counts and times, and no text of documents or questions."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one service. Each service has its own, so that those of two don't add up."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "pseudoquery_requests", "Requests.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "pseudoquery_request_seconds",
            "How long requests took.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge(
            "pseudoquery_requests_in_progress", "Requests in progress.", registry=registry
        )
        self.connections = Gauge("pseudoquery_connections", "Open connections.", registry=registry)
        self.closed = Counter(
            "pseudoquery_connections_closed",
            "Connections that the service has ended.",
            ["reason"],
            registry=registry,
        )
        self.batches = Histogram(
            "pseudoquery_search_batch_queries",
            "How many queries were encoded and ranked together.",
            buckets=SIZES,
            registry=registry,
        )
        self.written = Counter(
            "pseudoquery_documents_written", "Changes.", ["outcome"], registry=registry
        )
        self._documents = Gauge("pseudoquery_documents", "Documents.", registry=registry)
        self._waiting = Gauge(
            "pseudoquery_waiting", "Searches and writes not begun.", ["kind"], registry=registry
        )

    def watch_queue(self, kind: str, count: Callable[[], int]) -> None:
        """Report the length of a queue, which is looked up when the metrics are read."""
        self._waiting.labels(kind).set_function(count)

    def as_text(self, documents: int) -> bytes:
        """Write all metrics in Prometheus's text format."""
        self._documents.set(documents)
        return generate_latest(self._registry)
