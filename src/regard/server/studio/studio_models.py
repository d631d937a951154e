"""The models of a studio for programs: the endpoints of `regard serve` on models that the page uses too.

They are in the process of the studio and compute one request or batch at a time, between those of the page.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from regard.server.models.messages import Reply
from regard.server.models.process import Receiver
from regard.server.models.served_models import ModelDirectory

if TYPE_CHECKING:
    from regard.server.studio.model_registry import ModelEntry, ModelRegistry


class StudioModel:
    """A loaded model of a registry that answers as a `ModelProcess` does. Use it from one event loop."""

    state = "ready"

    def __init__(self, name: str, entry: ModelEntry) -> None:
        from regard.server.models.served_model import ServedModel

        assert entry.loaded is not None
        self.name, self._loop = name, asyncio.get_running_loop()
        served = ServedModel(name, entry.loaded)
        self.info: dict[str, Any] = served.info()
        self._receivers: dict[int, Receiver] = {}
        self._number = 0
        self._messages: SimpleQueue[tuple[int, str, str, Mapping[str, Any]]] = SimpleQueue()
        self._worker = served.worker(self._send, guard=entry.lock)
        for target in (self._worker.run, self._receive):
            threading.Thread(target=target, name="regard-studio-model", daemon=True).start()

    def send(self, client: str, operation: str, arguments: Mapping[str, Any], receiver: Receiver) -> int:
        self._number += 1
        self._receivers[self._number] = receiver
        self._messages.put((self._number, client, operation, arguments))
        return self._number

    def cancel(self, number: int) -> None:
        if self._receivers.pop(number, None) is not None:
            self._messages.put((number, "", "cancel", {}))

    def _receive(self) -> None:
        """Tokenizing is no work for the event loop."""
        while True:
            self._worker.receive(self._messages.get())

    def _send(self, replies: list[Reply]) -> None:
        if replies and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, replies)

    def _deliver(self, replies: list[Reply]) -> None:
        for reply in replies:
            final = reply.state != "event"
            receiver = self._receivers.pop(reply.number, None) if final else self._receivers.get(reply.number)
            if receiver is not None:
                receiver(reply)


class StudioModels(ModelDirectory):
    """The models of a registry that are loaded; each gets its threads with the first request for it."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._models: dict[int, StudioModel] = {}  # by entry: a model may be trained again under its name

    @property
    def processes(self) -> Mapping[str, StudioModel]:
        ready = {name: entry for name, entry in self._registry.entries.items() if entry.state == "ready"}
        for name, entry in ready.items():
            if id(entry) not in self._models:
                self._models[id(entry)] = StudioModel(name, entry)
        return {name: self._models[id(entry)] for name, entry in ready.items()}
