"""Structured logs: a line of JSON for each request and event, without texts or keys.

A thread writes the lines, a few times per second: a stream that nobody reads must not stop the event loop. Lines that
cannot be written in time are dropped and counted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TextIO

INTERVAL_SECONDS = 0.2
MAX_LINES = 10_000  # that wait to be written


class RequestLog:
    """`write` may be called from any thread and never waits; `close` writes what is left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._wake, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="regard-log", daemon=True)
        self._thread.start()

    def write(self, entry: Mapping[str, object]) -> None:
        """Add a line; the time comes first."""
        if len(self._lines) >= MAX_LINES:
            self._dropped += 1
            return
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        self._lines.append(json.dumps({"time": stamp, **entry}))
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            if not self._closed:
                time.sleep(INTERVAL_SECONDS)
            self._wake.clear()
            self._write_lines()

    def _write_lines(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._dropped:
            lines.append(json.dumps({"event": "log lines were dropped", "lines": self._dropped}))
            self._dropped = 0
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # a closed stream
            pass
