"""Verbs on a served model: one runs at a time and has the model to itself. Runs in the model's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, suggest
from regard.events import Event, drain
from regard.inference.load_model import load_model
from regard.server import verbs
from regard.server.model_registry import ModelEntry, ModelRegistry
from regard.server.request_queue import check_connected, run_for_client


class NoImages:
    """A server for programs keeps no uploaded images."""

    def has(self, key: object) -> bool:
        return False

    def file(self, key: str) -> Any:
        raise InputError("the server keeps no images")


class ProcessModels(ModelRegistry):
    """The model of this process and, for verbs that compare models, the server's others, loaded when they are needed.

    `paths` are all models of the server by name.
    """

    def __init__(self, name: str, loaded: LoadedModel, paths: Mapping[str, str]) -> None:
        super().__init__([], threads=torch.get_num_threads(), load=lambda other: load_model(paths[other]))
        self.paths = paths
        entry = ModelEntry(name)
        entry.set_loaded(loaded)
        self.entries = {name: entry}

    def entry(self, name: str) -> ModelEntry:
        if name not in self.paths:
            raise InputError(f"the server has no model {name[:200]!r}; {suggest(name[:200], self.paths)}")
        if name not in self.entries:
            self.add(name)
        return self.entries[name]


class VerbJob:
    """Arguments: `verb`, `arguments`, and the `form` of the reply (`verb_routes.Form`). Events are JSON."""

    server: ClassVar[str] = "the server"

    def __init__(self, models: ProcessModels) -> None:
        self.models, self.images = models, NoImages()

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[bytes, int]]:
        def on_event(event: Event) -> None:
            check_connected()
            emit(verbs.encode(event.model_dump(mode="json")))

        def compute() -> bytes:
            result = drain(verbs.run_verb(self, arguments["verb"], arguments["arguments"]), on_event)
            return verbs.encode_result(result, arguments["form"])

        return run_for_client(cancelled, compute), 0
        yield  # a generator that takes one step: hooks of a verb must not see other requests
