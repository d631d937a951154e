"""The outermost layer of a server: gives each request an id and a record, then logs and counts its answer."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING

from regard.server.endpoint import RequestRecord

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from regard.server.metrics import ServerMetrics
    from regard.server.request_log import RequestLog

REQUEST_ID = b"x-request-id"
SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Gateway:
    """Middleware. A request's own X-Request-ID is kept if it is short and plain; every answer carries the id."""

    def __init__(self, app: ASGIApp, log: RequestLog | None = None, metrics: ServerMetrics | None = None) -> None:
        self.app, self.log, self.metrics = app, log, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        number = given if SANE_ID.fullmatch(given) else secrets.token_hex(12).encode()
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

        if self.metrics is not None:
            self.metrics.begin(scope["path"])
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - record.start
            if self.metrics is not None:
                self.metrics.end(scope["path"], record, status, seconds)
            if self.log is not None:
                self.log.write(
                    {
                        "request_id": record.id,
                        "method": scope["method"],
                        "path": scope["path"][:200],
                        "status": status,
                        "seconds": round(seconds, 6),
                        "model": record.model or None,
                        "tokens": record.timing.tokens,
                    }
                )
