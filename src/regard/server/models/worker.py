"""The scheduler of a model's process: prepares requests while a batch runs, computes batches, sends the replies.

Depends on neither HTTP nor the kind of model: services (`services.py`) compute in batches, jobs are generators that
take the model for a step at a time.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from regard.cancellation import Cancelled
from regard.engine.memory import MemoryTrimmer
from regard.errors import InputError, RegardError
from regard.server.errors import RequestError
from regard.server.models.batch_queue import BatchQueue, Piece
from regard.server.models.messages import Reply, Timing
from regard.server.models.services import BatchService, PreparedRequest

IDLE_SECONDS = 1.0  # without a batch
LARGE = 20_000  # characters of a request that another thread tokenizes, so that small ones need not wait
# Called with arguments, whether the client has gone, and a function that sends an event within a step.
Job = Callable[[Mapping[str, Any], threading.Event, Callable[[Any], None]], Generator[Any, None, tuple[Any, int, str]]]


@dataclass(eq=False, slots=True)
class _Request:
    client: str
    results: list[Any] = field(default_factory=list)
    missing: int = 0
    finish: Callable[[list[Any]], Any] | None = None
    tokens: int = 0
    warning: str = ""
    tokenization: float = 0.0
    queued: float = 0.0  # when it was put into the queue
    started: float = 0.0
    inference: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)


class ModelWorker:
    """`receive` accepts messages from one thread; `run` computes in another until `close`.

    `services` are operations whose requests are computed together, `jobs` those that run alone; a job yields events or,
    between two steps, None, and returns the reply and its number of tokens. `functions` do not use the model: they are
    answered at once. `send` gets lists of replies; it must be callable from several threads. `use_threads` is called
    before each batch: True if it may use all cores, False if it shares them with those of other lanes.

    A job with a method `prepare` gets the arguments that it returns; it runs in the thread that tokenizes large
    requests, while other clients use the model.
    """

    def __init__(
        self,
        services: Mapping[str, BatchService],
        jobs: Mapping[str, Job],
        functions: Mapping[str, Callable[[Mapping[str, Any]], Any]],
        send: Callable[[list[Reply]], None],
        *,
        lanes: int = 1,
        use_threads: Callable[[bool], None] | None = None,
    ) -> None:
        self._services, self._jobs, self._send = services, jobs, send
        self._functions: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            **functions,
            "busy_seconds": lambda arguments: self.busy_seconds(),
        }
        self._queue = BatchQueue(lanes)
        self._starts: dict[int, float] = {}  # of the batches that are being computed, by lane
        self._use_threads = use_threads
        self._lock = threading.Lock()  # of the results of a request whose parts several lanes compute
        self._requests: dict[int, _Request] = {}
        self._large: queue.SimpleQueue[tuple[int, str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._max_tokens = max((service.max_tokens for service in services.values()), default=1)
        self._trim, self._last_batch = MemoryTrimmer(), 0.0
        threading.Thread(target=self._prepare_large, name="regard-tokenize", daemon=True).start()
        threading.Thread(target=self._trim_when_idle, name="regard-trim", daemon=True).start()

    def receive(self, message: tuple[int, str, str, Mapping[str, Any]]) -> None:
        """Take a request, or cancel an earlier one (`operation` "cancel")."""
        number, client, operation, arguments = message
        if operation == "cancel":
            return self._cancel(number)
        request = self._requests[number] = _Request(client)
        if operation in self._services:
            texts = arguments.get("inputs") or arguments.get("texts") or ()
            if sum(len(text[0] or "") if isinstance(text, tuple) else len(text) for text in texts) > LARGE:
                self._large.put((number, operation, arguments))
            else:
                self._prepare(number, operation, arguments)
        elif operation in self._jobs:
            if hasattr(self._jobs[operation], "prepare"):
                self._large.put((number, operation, arguments))
            else:
                self._enqueue_job(number, request, operation, arguments)
        elif operation in self._functions:
            try:
                payload = self._functions[operation](arguments)
            except Exception as error:
                return self._fail(number, error)
            del self._requests[number]
            self._send([Reply(number, "done", payload)])
        else:
            self._fail(number, RequestError(422, f"this model has no operation {operation!r}"))

    def run(self) -> None:
        """Compute until `close` was called and nothing waits."""
        others = [
            threading.Thread(target=copy_context().run, args=(self._run_lane, lane), name="regard-lane", daemon=True)
            for lane in range(1, self._queue.lanes)
        ]
        for thread in others:
            thread.start()
        self._run_lane(0)
        for thread in others:
            thread.join()

    def _run_lane(self, lane: int) -> None:
        while batch := self._queue.take(self._max_tokens, lane):
            replies: list[Reply] = []
            self._starts[lane] = time.perf_counter()
            try:
                if self._use_threads is not None:
                    self._use_threads(batch.alone)
                if kind := batch.pieces[0].kind:
                    replies = self._compute(kind, batch.pieces)
                else:
                    self._step(batch.pieces[0])
            finally:
                del self._starts[lane]
                self._queue.finish()
                self._last_batch = time.perf_counter()
            self._send(replies)

    def busy_seconds(self) -> float:
        """For how long the oldest of the current batches or steps has been computed; 0 if there is none."""
        starts = list(self._starts.values())
        return time.perf_counter() - min(starts) if starts else 0.0

    def close(self) -> None:
        self._large.put(None)
        self._queue.close()

    def _trim_when_idle(self) -> None:
        """Return the memory of finished batches to the system once no requests come; until then it is reused."""
        while True:
            time.sleep(IDLE_SECONDS)
            last = self._last_batch
            if last and not self._requests and time.perf_counter() > last + IDLE_SECONDS:
                self._last_batch = 0.0
                self._trim()

    def _prepare_large(self) -> None:
        while (waiting := self._large.get()) is not None:
            self._prepare(*waiting)

    def _prepare(self, number: int, operation: str, arguments: Mapping[str, Any]) -> None:
        start = time.perf_counter()
        request = self._requests.get(number)
        if request is None:  # cancelled before it was prepared
            return
        try:
            if operation in self._jobs:
                arguments = self._jobs[operation].prepare(arguments)  # type: ignore[attr-defined]
                request.tokenization = time.perf_counter() - start
                return self._enqueue_job(number, request, operation, arguments)
            prepared: PreparedRequest = self._services[operation].prepare(arguments)
        except Exception as error:
            return self._fail(number, error)
        request.queued = time.perf_counter()
        request.tokenization = request.queued - start
        request.tokens, request.finish, request.warning = prepared.tokens, prepared.finish, prepared.warning
        request.results, request.missing = [None] * len(prepared.parts), len(prepared.parts)
        if request.cancelled.is_set():
            return
        kind = self._services[operation].kind
        self._queue.put(
            Piece(number, request.client, kind, tokens, content, index)
            for index, (tokens, content) in enumerate(prepared.parts)
        )

    def _enqueue_job(self, number: int, request: _Request, operation: str, arguments: Mapping[str, Any]) -> None:
        request.queued = time.perf_counter()
        job = self._jobs[operation](
            arguments, request.cancelled, lambda event: self._send([Reply(number, "event", event)])
        )
        self._queue.put([Piece(number, request.client, "", 0, job)])

    def _compute(self, kind: str, batch: list[Piece]) -> list[Reply]:
        """The replies of requests that a batch completes, after one about the batch itself."""
        batch = [piece for piece in batch if piece.request in self._requests]
        if not batch:
            return []
        start = time.perf_counter()
        service = next(one for one in self._services.values() if one.kind == kind)
        tokens = sum(piece.tokens for piece in batch)
        replies = [Reply(0, "batch", (len(batch), tokens, len(self._queue)))]
        try:
            results = service.compute([piece.content for piece in batch])
        except Exception as error:
            for number in {piece.request for piece in batch}:
                self._fail(number, error)
            return replies
        seconds = time.perf_counter() - start
        for piece, result in zip(batch, results, strict=True):
            request = self._requests.get(piece.request)
            if request is None:
                continue
            with self._lock:
                request.started = request.started or start
                request.inference += seconds
                request.results[piece.index] = result
                request.missing -= 1
                complete = not request.missing
            if complete:
                self._requests.pop(piece.request, None)
                assert request.finish is not None
                try:
                    replies.append(Reply(piece.request, "done", request.finish(request.results), _timing(request)))
                except Exception as error:
                    replies.append(Reply(piece.request, "error", _fault(error)))
        return replies

    def _step(self, piece: Piece) -> None:
        """Let a job take a step; it waits for its next turn like a new request of its client."""
        request = self._requests.get(piece.request)
        if request is None:
            piece.content.close()
            return
        start = time.perf_counter()
        request.started = request.started or start
        try:
            event = next(piece.content)
        except StopIteration as end:
            request.inference += time.perf_counter() - start
            self._requests.pop(piece.request, None)
            payload, request.tokens, request.warning = end.value
            return self._send([Reply(piece.request, "done", payload, _timing(request))])
        except Exception as error:
            return self._fail(piece.request, error)
        request.inference += time.perf_counter() - start
        self._queue.put([piece])
        if event is not None:
            self._send([Reply(piece.request, "event", event)])

    def _cancel(self, number: int) -> None:
        request = self._requests.pop(number, None)
        if request is not None:
            request.cancelled.set()
            self._queue.discard(request.client, number)

    def _fail(self, number: int, error: Exception) -> None:
        if self._requests.pop(number, None) is not None and not isinstance(error, Cancelled):
            self._send([Reply(number, "error", _fault(error))])


def _timing(request: _Request) -> Timing:
    waited = max(0.0, request.started - request.queued)
    return Timing(request.tokenization, waited, request.inference, request.tokens, request.warning)


def _fault(error: Exception) -> tuple[int, str, str | None, str | None]:
    """What the client is told: the faults of its request, and one line for anything unexpected."""
    if isinstance(error, RequestError):
        return error.to_tuple()
    if isinstance(error, InputError):
        return 422, str(error), None, "invalid_value"
    if isinstance(error, RegardError):
        return 500, str(error), None, "internal_error"
    # Its message may name files of the server, or have texts of the client: neither the client nor the log gets it.
    where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
    event = {"event": "internal_error", "error": type(error).__name__, "where": where}
    print(json.dumps(event), file=sys.stderr, flush=True)
    return 500, f"internal error: {type(error).__name__}", None, "internal_error"
