"""The queue of a model: pieces of requests that wait for it, taken in batches of tokens, in turns between clients.

Depends on neither HTTP nor models. A piece is what cannot be divided, such as a few texts; pieces of the same kind from
many clients share a batch, and a piece without a kind is computed alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False, slots=True)
class Piece:
    """A part of a request of a client, with its number of tokens. `kind` says what shares a batch; "": nothing."""

    request: int
    client: str
    kind: str
    tokens: int
    content: Any
    index: int = 0  # within the request


class BatchQueue:
    """Pieces by client. Thread-safe: one thread takes batches, others add and discard."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Piece]] = {}  # the client to serve next comes first
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._size

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces at the ends of their clients' lines."""
        with self._changed:
            for piece in pieces:
                self._lines.setdefault(piece.client, deque()).append(piece)
                self._size += 1
            self._changed.notify()

    def discard(self, client: str, request: int) -> int:
        """Remove the pieces of a request that wait; returns their number."""
        with self._changed:
            line = self._lines.get(client, deque())
            kept = deque(piece for piece in line if piece.request != request)
            removed = len(line) - len(kept)
            self._size -= removed
            if kept:
                self._lines[client] = kept
            else:
                self._lines.pop(client, None)
            return removed

    def take(self, max_tokens: int) -> list[Piece]:
        """Wait for pieces and return a batch of at most `max_tokens` tokens, or of one larger piece; [] once closed.

        The client that waited longest decides the kind. Each round takes one piece of every client; those that get
        none because the batch is full are served first in the next batch.
        """
        with self._changed:
            while not self._lines:
                if self._closed:
                    return []
                self._changed.wait()
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
                    self._size -= 1
                    found = True
                    if line:
                        self._lines[client] = line  # at the end, so that other clients come first
                    if not kind:
                        return batch
            return batch

    def close(self) -> None:
        """Let `take` return [] once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
