"""The queue of a model: pieces of requests that wait for it, taken in batches of tokens, in turns between clients.

Depends on neither HTTP nor models. A piece is what cannot be divided, such as a few texts; pieces of the same kind from
many clients share a batch, and a piece without a kind is computed alone. Several lanes, threads of the model's process,
take batches at the same time: for small models that is faster than one batch on all cores.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

PATIENCE_SECONDS = 0.0015  # that a lane waits for more pieces while another one computes
JOIN_TOKENS = 128  # with so many tokens nobody waits for more
SPLIT_PIECES = 8  # waiting pieces that idle lanes divide among them


@dataclass(eq=False, slots=True)
class Piece:
    """A part of a request of a client, with its number of tokens. `kind` says what shares a batch; "": nothing."""

    request: int
    client: str
    kind: str
    tokens: int
    content: Any
    index: int = 0  # within the request


class PieceBatch(NamedTuple):
    """Pieces to compute. `alone`: no other lane computes or has something to compute."""

    pieces: list[Piece]
    alone: bool


class BatchQueue:
    """Pieces by client. Thread-safe: `lanes` threads take batches, others add and discard pieces."""

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self._lines: dict[str, deque[Piece]] = {}  # the client to serve next comes first
        self._size, self._tokens = 0, 0
        self._running, self._exclusive, self._closed = 0, False, False
        self._lock = threading.RLock()
        self._wake = [threading.Condition(self._lock) for _ in range(lanes)]
        self._idle: set[int] = set()  # lanes that wait

    def __len__(self) -> int:
        return self._size

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces at the ends of their clients' lines."""
        with self._lock:
            for piece in pieces:
                self._lines.setdefault(piece.client, deque()).append(piece)
                self._size += 1
                self._tokens += piece.tokens
            self._wake_one()

    def discard(self, client: str, request: int) -> int:
        """Remove the pieces of a request that wait; returns their number."""
        with self._lock:
            line = self._lines.get(client, deque())
            kept = deque(piece for piece in line if piece.request != request)
            removed = len(line) - len(kept)
            self._size -= removed
            self._tokens -= sum(piece.tokens for piece in line) - sum(piece.tokens for piece in kept)
            if kept:
                self._lines[client] = kept
            else:
                self._lines.pop(client, None)
            return removed

    def take(self, max_tokens: int, lane: int = 0) -> PieceBatch | None:
        """Wait for pieces and return a batch of at most `max_tokens` tokens, or of one larger piece; None once closed.

        An idle model starts at once; while a lane computes, the others wait a moment for more to join. The first lane
        that is free gets the next batch: a single client always has the same one, with its warm threads. The caller
        must call `finish` when it has computed the batch.
        """
        with self._lock:
            while not self._is_ready():
                if self._closed and not self._lines:
                    return None
                self._idle.add(lane)
                self._wake[lane].wait()
                self._idle.discard(lane)
                self._wait_for_more(lane)
            idle = self.lanes - self._running
            split = idle > 1 and self._size >= SPLIT_PIECES
            if split:
                max_tokens = min(max_tokens, math.ceil(self._tokens / idle))
            pieces = self._next_pieces(max_tokens)
            self._exclusive = not pieces[0].kind
            self._running += 1
            if self._lines:
                self._wake_one()
            return PieceBatch(pieces, alone=self._running == 1 and not split)

    def finish(self) -> None:
        """The caller has computed its batch."""
        with self._lock:
            self._running -= 1
            was_exclusive, self._exclusive = self._exclusive, False
            if was_exclusive or not self._running:
                self._wake_one()

    def close(self) -> None:
        """Let `take` return None once nothing waits."""
        with self._lock:
            self._closed = True
            for condition in self._wake:
                condition.notify_all()

    def _wake_one(self) -> None:
        if self._idle and self._lines:
            self._wake[min(self._idle)].notify()

    def _is_ready(self) -> bool:
        """Whether the next piece may be computed now: one without a kind has the model to itself."""
        if not self._lines or self._exclusive:
            return False
        return not self._running or bool(next(iter(self._lines.values()))[0].kind)

    def _wait_for_more(self, lane: int) -> None:
        """While another lane computes, wait a moment for a fuller batch."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self._running and 0 < self._tokens < JOIN_TOKENS and (left := end - time.monotonic()) > 0:
            self._wake[lane].wait(left)

    def _next_pieces(self, max_tokens: int) -> list[Piece]:
        """The client that waited longest decides the kind. Each round takes one piece of every client; those that get
        none because the batch is full are served first in the next batch."""
        batch: list[Piece] = []
        tokens, kind = 0, next(iter(self._lines.values()))[0].kind
        found = True
        while found:
            found = False
            for client in list(self._lines):
                piece = self._lines[client][0]
                if piece.kind != kind or (batch and tokens + piece.tokens > max_tokens):
                    continue
                line = self._lines.pop(client)
                batch.append(line.popleft())
                tokens += piece.tokens
                found = True
                if line:
                    self._lines[client] = line  # at the end, so that other clients come first
                if not kind:
                    break
            found = found and bool(kind)
        self._size -= len(batch)
        self._tokens -= tokens
        return batch
