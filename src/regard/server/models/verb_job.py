"""Verbs on a served model: one runs at a time and has the model to itself. Runs in the model's process for verbs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from regard.cancellation import Cancelled, run_cancellable
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError, suggest
from regard.events import Event, drain
from regard.inference.load_model import load_model
from regard.server.models import client_verbs as verbs
from regard.server.request_errors import RequestError
from regard.server.studio.model_registry import ModelEntry, ModelRegistry


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
        super().__init__([], threads=torch.get_num_threads(), load=self._load_other)
        self.paths = paths
        entry = ModelEntry(name)
        entry.set_loaded(loaded)
        self.entries = {name: entry}

    def _load_other(self, name: str) -> LoadedModel:
        """By the name that clients know; they are not told where it is, nor what is wrong with its files."""
        try:
            return replace(load_model(self.paths[name]), name=name)
        except (RegardError, OSError) as error:
            raise RegardError(f"{name} could not be loaded for this verb; its files have changed") from error

    def entry(self, name: str) -> ModelEntry:
        if name not in self.paths:
            raise InputError(f"the server has no model {name[:200]!r}; {suggest(name[:200], self.paths)}")
        if name not in self.entries:
            self.add(name)
        return self.entries[name]


class VerbJob:
    """Arguments: `verb`, `arguments`, the `form` of the reply (`verb_routes.Form`), `seconds` that the verb may take,
    and `max_items` of a list. Events are JSON."""

    server: ClassVar[str] = "the server"
    max_items = 0

    def __init__(self, models: ProcessModels) -> None:
        self.models, self.images = models, NoImages()

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[bytes, int, str]]:
        def on_event(event: Event) -> None:
            if arguments["form"] == "events":
                emit(verbs.encode(event.model_dump(mode="json")))

        def compute() -> bytes:
            self.max_items = arguments["max_items"]
            os.makedirs(tempfile.gettempdir(), mode=0o700, exist_ok=True)  # systems clean up what was not used for days
            result = drain(verbs.run_verb(self, arguments["verb"], arguments["arguments"]), on_event)
            if arguments["form"] == "document":
                verbs.check_answer(self, {"bytes": result.document_bytes()})
            answer = verbs.encode_result(result, arguments["form"])
            verbs.check_answer(self, {"bytes": len(answer)})
            return answer

        end = time.monotonic() + arguments["seconds"]
        try:
            return run_cancellable(lambda: cancelled.is_set() or time.monotonic() > end, compute), 0, ""
        except Cancelled:
            if cancelled.is_set():
                raise
            raise RequestError(
                504,
                f"{arguments['verb']} took longer than {arguments['seconds']:g} seconds; send less at once, or raise "
                "--verb-timeout",
                code="timeout",
            ) from None
        yield  # a generator that takes one step: hooks of a verb must not see other requests
