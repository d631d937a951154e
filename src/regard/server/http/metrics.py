"""Prometheus metrics with the names of Text Embeddings Inference, so that its dashboards work."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from regard.server.http.endpoint import RequestRecord

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = tuple(2**power for power in range(15))
UNCOUNTED = ("/health", "/metrics", "/info", "/openapi.json")
ERRORS = ("overloaded", "validation", "inference", "unhealthy", "timeout", "disconnected", "unauthorized")
SUFFIX = re.compile(rb"^((?:# \w+ )?(?:te|regard)_\w+)_total\b", re.MULTILINE)
CREATED = re.compile(rb"^(?:# \w+ )?(?:te|regard)_\w+_created\b.*\n", re.MULTILINE)  # when a series began; TEI has none
# The counters of TEI for each kind of request.
OPERATIONS = {
    "/embed": "embed",
    "/embed_all": "embed",
    "/embed_sparse": "embed",
    "/similarity": "embed",
    "/v1/embeddings": "embed",
    "/predict": "predict",
    "/rerank": "rerank",
    "/v1/rerank": "rerank",
    "/tokenize": "tokenize",
}


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        with_model = ["model"]
        self._count = self._counter("te_request_count", "Requests.", ["method"])
        self._success = self._counter("te_request_success", "Requests that were answered.", ["method"])
        self._failure = self._counter("te_request_failure", "Requests that failed, by kind of error.", ["err"])
        for counter in (self._count, self._success):
            counter.labels("batch")  # series begin at 0, so that the first request is an increase
        for error in ERRORS:
            self._failure.labels(error)
        self._kinds = {
            kind: (
                self._counter(f"te_{kind}_count", f"Requests to {kind}.", []),
                self._counter(f"te_{kind}_success", f"Requests to {kind} that were answered.", []),
            )
            for kind in sorted(set(OPERATIONS.values()))
        }
        self._duration = self._histogram("te_request_duration", "Seconds from the request to its answer.")
        self._tokenization = self._histogram("te_request_tokenization_duration", "Seconds of tokenizing.")
        self._queue = self._histogram("te_request_queue_duration", "Seconds of waiting for the model.")
        self._inference = self._histogram("te_request_inference_duration", "Seconds of batches with the request.")
        self._input_length = self._histogram("te_request_input_length", "Tokens of a request.", SIZES)
        self._batch_size = self._histogram("te_batch_next_size", "Parts of requests in a batch.", SIZES, with_model)
        self._batch_tokens = self._histogram("te_batch_next_tokens", "Tokens of a batch.", SIZES, with_model)
        self._queue_size = Gauge(
            "te_queue_size", "Parts of requests that wait for a model.", with_model, registry=self.registry
        )
        self._restarts = self._counter("regard_model_restarts", "Restarts of the process of a model.", with_model)

    def begin(self, path: str) -> None:
        if path in UNCOUNTED:
            return
        self._count.labels("batch").inc()
        if path in OPERATIONS:
            self._kinds[OPERATIONS[path]][0].inc()

    def end(self, path: str, record: RequestRecord, status: int, seconds: float) -> None:
        if path in UNCOUNTED:
            return
        if status >= 400:
            self._failure.labels(record.error or ("validation" if status < 500 else "inference")).inc()
            return
        self._success.labels("batch").inc()
        if path in OPERATIONS:
            self._kinds[OPERATIONS[path]][1].inc()
        timing = record.timing
        self._duration.observe(seconds)
        if record.operation:
            self._tokenization.observe(timing.tokenization)
            self._queue.observe(timing.queue)
            self._inference.observe(timing.inference)
            self._input_length.observe(timing.tokens)

    def on_batch(self, model: str, batch: tuple[int, int, int]) -> None:
        """Called after each batch with its number of parts, its tokens and the parts that wait."""
        size, tokens, waiting = batch
        self._batch_size.labels(model).observe(size)
        self._batch_tokens.labels(model).observe(tokens)
        self._queue_size.labels(model).set(waiting)

    def on_restart(self, model: str) -> None:
        self._restarts.labels(model).inc()

    async def respond(self, request: Request) -> Response:
        return Response(self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def text(self) -> bytes:
        """All metrics. TEI's counters do not end in _total, which the client library adds to every counter."""
        return SUFFIX.sub(rb"\1", CREATED.sub(b"", generate_latest(self.registry)))

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...] = SECONDS, labels: list[str] | None = None
    ) -> Histogram:
        return Histogram(name, text, labels or [], buckets=buckets, registry=self.registry)
