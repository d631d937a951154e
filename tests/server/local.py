"""Servers whose models are in the process of the tests, which can then replace what is computed and watch it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import Event
from regard.inference.load_model import load_model
from regard.render.result import Result
from regard.server.models.messages import Reply
from regard.server.models.process import ModelProcess, Receiver
from regard.server.models.program import explain
from regard.server.models.registry import ModelOptions, ModelRegistry
from regard.server.models.served_model import ServedModel
from regard.server.models.verb_job import ProcessModels, VerbJob
from regard.server.studio.training import TrainingJob, run_training
from tests.server.coroutines import run_coroutine

LOCAL = ModelOptions(device="cpu", local=True)


class LocalProcess(ModelProcess):
    """A model whose worker runs in threads of this process. Any event loop may use it."""

    def __init__(self, name: str, setup: Mapping[str, Any], *, load: Any, run_verb: Any, **settings: Any) -> None:
        super().__init__(name, setup, **settings)
        self._load, self._run_verb = load, run_verb
        self._callers: dict[int, tuple[Receiver, asyncio.AbstractEventLoop]] = {}
        self._messages: SimpleQueue[tuple[int, str, str, Mapping[str, Any]]] = SimpleQueue()

    @property
    def in_flight(self) -> int:
        return len(self._callers)

    async def start(self) -> None:
        try:
            self.served = await asyncio.to_thread(ServedModel, self.setup, lambda path, **options: self._load(path))
        except Exception as error:
            raise InputError(f"{self.name} cannot be served: {explain(error)['error']}") from None
        verb = self.served.jobs.get("verb")
        if self._run_verb is not None and isinstance(verb, VerbJob):
            verb.run_verb = self._run_verb
        self.info = self.served.info()
        self.worker = self.served.worker(self._deliver)
        for target in (self.worker.run, self._receive_all):
            threading.Thread(target=target, name="local-model", daemon=True).start()
        self.state, self.last_used = "ready", asyncio.get_running_loop().time()

    def send(self, client: str, operation: str, arguments: Mapping[str, Any], receiver: Receiver) -> int:
        self._number += 1
        self._callers[self._number] = receiver, asyncio.get_running_loop()
        self._messages.put((self._number, client, operation, arguments))
        return self._number

    def cancel(self, number: int) -> None:
        if self._callers.pop(number, None) is not None:
            self._messages.put((number, "", "cancel", {}))

    def close(self) -> None:
        self.state = "closed"

    def _receive_all(self) -> None:
        while True:
            self.worker.receive(self._messages.get())

    def _deliver(self, replies: list[Reply]) -> None:
        for reply in replies:
            receiver, loop = self._callers.get(reply.number, (None, None))
            if reply.state != "event":
                self._callers.pop(reply.number, None)
            if receiver is not None and loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(receiver, reply)


def local_registry(
    names: Sequence[str], *, door: str = "studio", load: Callable[[str], Any] = load_model, run_verb: Any = None
) -> ModelRegistry:
    """The models of a server, as they are some time after its start: the first one is loaded, and of the others it is
    known what they can do. `load` and `run_verb` replace the library's functions."""
    options = replace(LOCAL, local=door == "studio")
    registry = ModelRegistry(names, options, create=partial(LocalProcess, load=load, run_verb=run_verb))
    run_coroutine(registry.prepare())
    return registry


def stub_registry(run_verb: Any, *, door: str = "studio") -> ModelRegistry:
    """Models that compute nothing and run already, for verbs that tests define."""
    names = ["regard-bert", "regard-gpt"]
    registry = local_registry(
        names, door=door, load=lambda name: LoadedModel(name, nn.Linear(1, 1), None), run_verb=run_verb
    )
    for name in names:
        run_coroutine(registry.process(name, "verbs"))
    return registry


def verb_host(name: str, *others: str) -> VerbJob:
    """A model in this process and what verbs of a studio's clients see around it."""
    host = VerbJob(ProcessModels(name, load_model(name), {one: one for one in (name, *others)}, local=True))
    host.max_items = 20_000
    return host


def run_in_thread(job: TrainingJob) -> Mapping[str, float]:
    """Train in this thread. The job can be stopped only when it sends an event or a message."""
    return run_training(job.request, lambda event: job.on_event(event.model_dump()))


class StubResult(Result):
    """The result of a verb that a test defines."""

    page_view: ClassVar[str | None] = "test"
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.data


def run_verb_stub(**verbs: Callable[[VerbJob, Any], Mapping[str, object]]) -> Any:
    """Returns a `run_verb` that calls these functions instead of the verbs."""

    def run(host: VerbJob, name: str, arguments: Mapping[str, object]) -> Generator[Event, None, Result]:
        yield from ()
        return StubResult(data=dict(verbs[name](host, arguments)))

    return run
