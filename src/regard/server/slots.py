"""Slots: how many requests a server holds at once, in all and of one client. Not thread-safe: use it from one loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from regard.server.request_queue import ServerBusy


class Slots:
    """At most `count` requests at once, `per_client` of one client. A slot is taken before a body is read."""

    def __init__(self, count: int, per_client: int) -> None:
        self.count, self.per_client = count, min(count, per_client)
        self.used = 0
        self.message = f"the server is busy: it holds {self.count} requests. Try again in a moment"
        self._clients: Counter[str] = Counter()

    @contextmanager
    def hold(self, client: str) -> Iterator[None]:
        """Hold a slot; raises ServerBusy when there is none."""
        if self.used >= self.count:
            raise ServerBusy(self.message)
        if self._clients[client] >= self.per_client:
            raise ServerBusy(
                f"the server is busy: it holds {self.per_client} requests of this client. Try again in a moment"
            )
        self.used += 1
        self._clients[client] += 1
        try:
            yield
        finally:
            self.used -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
