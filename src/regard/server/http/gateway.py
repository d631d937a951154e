"""The outermost layer of a server: gives each request an id and a record, then logs and counts its answer."""

from __future__ import annotations

import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.http.endpoint import RequestRecord
from regard.server.http.metrics import ServerMetrics
from regard.server.http.request_log import RequestLog

REQUEST_ID = b"x-request-id"
SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id(given: bytes) -> bytes:
    """The id of a request: its own X-Request-ID if that is short and plain, else a new one."""
    return given if SANE_ID.fullmatch(given) else secrets.token_hex(12).encode()


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
