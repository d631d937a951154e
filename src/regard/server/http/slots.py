"""Slots: how many requests a server holds at once, in all and of one key or address. For one event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from regard.server.errors import ServerBusy


class Slots:
    """At most `count` requests at once, `per_client` of one client. A slot is taken before a body is read.

    `messages` are the two reasons why there is no slot.
    """

    def __init__(self, count: int, per_client: int) -> None:
        self.count, self.per_client = count, min(count, per_client)
        self.used = 0
        self.messages = [
            f"the server is busy: it holds {held}. Try again in a moment"
            for held in (f"{self.count} requests", f"{self.per_client} requests of this client")
        ]
        self._clients: Counter[str] = Counter()

    def refusal(self, client: str) -> str:
        """Why a client gets no slot now; empty if it gets one."""
        if self.used >= self.count:
            return self.messages[0]
        return self.messages[1] if self._clients[_holder(client)] >= self.per_client else ""

    @contextmanager
    def hold(self, client: str) -> Iterator[None]:
        """Hold a slot; raises ServerBusy when there is none."""
        if refusal := self.refusal(client):
            raise ServerBusy(refusal)
        holder = _holder(client)
        self.used += 1
        self._clients[holder] += 1
        try:
            yield
        finally:
            self.used -= 1
            self._clients[holder] -= 1
            if not self._clients[holder]:
                del self._clients[holder]


def _holder(client: str) -> str:
    """Whose slots a client uses: those of its key, or of its address, which all connections from there share."""
    return client.rpartition(":")[0] or client
