"""The outermost layer of a server: gives each request an id and a record, then logs and counts its answer."""

from __future__ import annotations

import json
import re
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.http.endpoint import RequestRecord
from regard.server.http.metrics import ServerMetrics

REQUEST_ID = b"x-request-id"
INTERVAL_SECONDS = 0.2  # between two writes of the log
MAX_LINES = 10_000  # that wait to be written
SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id(given: bytes) -> bytes:
    """The id of a request: its own X-Request-ID if that is short and plain, else a new one."""
    return given if SANE_ID.fullmatch(given) else secrets.token_hex(12).encode()


class RequestLog:
    """A line of JSON for each request and event, without texts or keys.

    `write` may be called from any thread and never waits; `close` writes what is left. A thread writes the lines, a few
    times per second: a stream that nobody reads must not stop the event loop. Lines that cannot be written in time are
    dropped and counted.
    """

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


class Reporter:
    """Counts requests and logs their answers."""

    def __init__(self, metrics: ServerMetrics, log: RequestLog | None = None) -> None:
        self.metrics, self.log = metrics, log

    def begin(self, path: str) -> None:
        self.metrics.begin(path)

    def end(self, record: RequestRecord, method: str, path: str, status: int) -> None:
        seconds = time.perf_counter() - record.start
        self.metrics.end(path, record, status, seconds)
        if self.log is not None:
            self.log.write(
                {
                    "request_id": record.id,
                    "method": method,
                    "path": path[:200],
                    "status": status,
                    "seconds": round(seconds, 6),
                    "model": record.model or None,
                    "tokens": record.timing.tokens,
                    **({"warning": record.timing.warning} if record.timing.warning else {}),
                }
            )


class Gateway:
    """Middleware; every answer carries the id of its request."""

    def __init__(self, app: ASGIApp, reporter: Reporter) -> None:
        self.app, self.reporter = app, reporter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        number = request_id(next((value for name, value in scope["headers"] if name == REQUEST_ID), b""))
        peer = scope.get("client")
        client = f"{peer[0]}:{peer[1]}" if peer else ""
        record = scope["regard.record"] = RequestRecord(number.decode(), client, time.perf_counter())
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((REQUEST_ID, number))
            await send(message)

        self.reporter.begin(scope["path"])
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.reporter.end(record, scope["method"], scope["path"], status)
