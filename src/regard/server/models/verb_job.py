"""Verbs on a served model: one runs at a time and has the model to itself. Runs in the model's process for verbs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from regard.cancellation import Cancelled, run_cancellable, should_stop
from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.packages import packaged_names
from regard.errors import InputError, RegardError, suggest
from regard.events import Event, drain
from regard.inference.load_model import load_model
from regard.known import builtin_names
from regard.nn.stack import Stack
from regard.server.errors import RequestError
from regard.server.models import client_verbs
from regard.server.models.images import UploadedImages

SMALL_MODEL = 150_000_000  # parameters


class ProcessModels:
    """The model of this process and, for verbs that compare models, the server's others, loaded when they are needed.

    `paths` are all models of the server by name. `threads` is the number of threads of a verb; 0: by the size of its
    model. `local` is that of `ModelOptions`.
    """

    def __init__(
        self,
        name: str,
        loaded: LoadedModel,
        paths: Mapping[str, str],
        *,
        threads: int = 0,
        local: bool = False,
        load: Callable[[str], LoadedModel] = load_model,
    ) -> None:
        self.paths, self.threads, self.local = paths, threads, local
        self._load = load
        self._loaded = {name: replace(loaded, cache={})}

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        """The model of a name; it raises Cancelled at its next forward pass once the client has gone."""
        loaded = self._find(name).in_precision(precision)
        use_threads(sum(parameter.numel() for parameter in loaded.model.parameters()), threads=self.threads)
        with interruptible(loaded.model):
            yield loaded

    def _find(self, name: str) -> LoadedModel:
        if name not in self._loaded:
            known = name in self.paths or (self.local and name in (*builtin_names(), *packaged_names()))
            if not known:
                server = "studio" if self.local else "server"
                raise InputError(f"the {server} has no model {name[:200]!r}; {suggest(name[:200], self.paths)}")
            try:
                loaded = self._load(self.paths.get(name, name))
            except (RegardError, OSError) as error:
                if self.local:
                    raise InputError(f"{name} could not be loaded: {error}") from error
                # Clients know the name of a model; they are not told where it is, nor what is wrong with its files.
                raise RegardError(f"{name} could not be loaded for this verb; its files have changed") from error
            self._loaded[name] = replace(loaded, name=name, cache={})
        return self._loaded[name]


class VerbJob:
    """Arguments: `verb`, `arguments`, the `form` of the reply (`protocols.verbs.Form`), `seconds` that the verb may
    take, `max_items` of a list, `paths` of all models of the server, and `images` that the arguments name. Events are
    JSON."""

    run_verb = staticmethod(client_verbs.run_verb)

    def __init__(self, models: ProcessModels) -> None:
        self.models, self.images = models, UploadedImages()
        self.server = "the studio" if models.local else "the server"
        self.max_items = 0

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[bytes, int, str]]:
        def on_event(event: Event) -> None:
            if arguments["form"] == "events":
                emit(client_verbs.encode(event.model_dump(mode="json")))

        def compute() -> bytes:
            self.max_items, self.models.paths = arguments["max_items"], arguments["paths"]
            self.images = UploadedImages(arguments["images"])
            os.makedirs(tempfile.gettempdir(), mode=0o700, exist_ok=True)  # systems clean up what was not used for days
            result = drain(self.run_verb(self, arguments["verb"], arguments["arguments"]), on_event)
            if arguments["form"] == "document":
                client_verbs.check_answer(self, {"bytes": result.document_bytes()})
            answer = client_verbs.encode_result(result, arguments["form"])
            client_verbs.check_answer(self, {"bytes": len(answer)})
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
        except RegardError:
            raise
        except Exception as error:
            if not self.models.local:
                raise
            message = " ".join(str(error).split())  # its user may read it; clients of others get only its type
            raise RegardError(f"internal error: {type(error).__name__}: {message}") from error
        yield  # a generator that takes one step: hooks of a verb must not see other requests


def use_threads(num_parameters: int, *, threads: int = 0) -> None:
    """Set the number of threads that tensor operations of this verb use; outside of a verb do nothing.

    0 chooses: one for a small model, all for a larger one. Threads of several processes that wait for each other on
    busy cores make all of them many times slower, and a sentence in a small model gains nothing from a second thread.
    """
    if should_stop.get() is not None:
        available = _available_threads()  # before the first change
        torch.set_num_threads(threads or (1 if num_parameters <= SMALL_MODEL else available))


@cache
def _available_threads() -> int:
    return torch.get_num_threads()


@contextmanager
def interruptible(model: nn.Module) -> Iterator[None]:
    """Make the model raise Cancelled at its next forward pass once the client has gone.

    The hooks are on the modules around the layers, such as the embeddings, which every forward pass and every decoding
    step calls. The layers themselves carry no hooks: only then does a decoder use its fast path.
    """
    stop = should_stop.get()
    if stop is None:
        yield
        return

    def check(module: nn.Module, inputs: object) -> None:
        if stop():  # a thread of torch has no context
            raise Cancelled

    hooks = [part.register_forward_pre_hook(check) for part in _modules_around_layers(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _modules_around_layers(model: nn.Module) -> Iterator[nn.Module]:
    if not isinstance(model, Stack):
        yield model
        for child in model.children():
            yield from _modules_around_layers(child)
