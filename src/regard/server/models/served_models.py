"""The models of a server by name, each in its process, and which of them answers a request."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from regard.errors import InputError, RegardError, suggest
from regard.server.models.process import ModelProcess, Receiver
from regard.server.request_errors import RequestError, invalid, unavailable

# What an operation needs, for the error about a model that lacks it.
NEEDS = {
    "embed": "embed texts",
    "rerank": "rerank: that needs a model that reads query and text together, trained by `regard train pair` with two "
    "classes or by `regard train regress`; a model of sentence vectors answers /similarity",
    "predict": "predict labels: that needs a model trained by `regard train classify` or `regard train pair`",
    "generate": "generate text",
    "tokenize": "tokenize text",
}


@dataclass(frozen=True)
class ModelOptions:
    """How the processes compute: torch threads (0: torch's default), device, precision, tokens per batch (0: what suits
    the device)."""

    threads: int = 0
    device: str = "auto"
    precision: str | None = None
    max_batch_tokens: int = 0


class AnsweringModel(Protocol):
    """A model that answers requests: a `ModelProcess`, or a model of a studio."""

    name: str

    @property
    def info(self) -> Mapping[str, Any]: ...

    @property
    def state(self) -> str: ...

    def send(self, client: str, operation: str, arguments: Mapping[str, Any], receiver: Receiver) -> int: ...

    def cancel(self, number: int) -> None: ...


class ModelDirectory:
    """Models by name, in the order in which they were named, and which of them answers a request."""

    @property
    def processes(self) -> Mapping[str, AnsweringModel]:
        raise NotImplementedError

    def named(self, name: str) -> AnsweringModel:
        """The model of a name; RequestError 404 when the server has no such model."""
        if name not in self.processes:
            raise RequestError(
                404,
                f"the server has no model {name[:200]!r}; {suggest(name[:200], self.processes)}",
                param="model",
                code="model_not_found",
            )
        return self.processes[name]

    def choose(self, operation: str, name: str | None = None) -> AnsweringModel:
        """The model that answers: the named one, or the first that can. A model trained for sentence vectors comes
        before others that embed. RequestError names the models that can when this one cannot."""
        able = [process for process in self.processes.values() if operation in process.info.get("operations", ())]
        if name is not None:
            process = self.named(name)
            if process not in able:
                raise invalid(f"{name} cannot {NEEDS[operation]}. {_which(able)}", param="model")
            return process
        if not able:
            raise invalid(f"no model of this server can {NEEDS[operation]}. Its models: {', '.join(self.processes)}")
        if operation == "embed":
            able.sort(key=lambda one: "sentence-embedding" not in one.info["capabilities"])
        return able[0]


class ServedModels(ModelDirectory):
    """Models that each have a process of their own, which is started again when it ends or is stuck, and another one
    for verbs, which the first verb starts. An idle process that has grown too large is replaced."""

    def __init__(
        self,
        names: Sequence[str],
        options: ModelOptions,
        *,
        stuck_seconds: float = math.inf,
        on_batch: Callable[[str, tuple[int, int, int]], None] | None = None,
        on_event: Callable[[Mapping[str, object]], None] | None = None,
    ) -> None:
        self._paths, self._options = model_ids(names), options
        self._settings: dict[str, Any] = {"stuck_seconds": stuck_seconds, "on_batch": on_batch, "on_event": on_event}
        self._processes = {name: self._create(name, "serving", self._replace) for name in self._paths}
        self._verbs: dict[str, tuple[ModelProcess, asyncio.Task[None]]] = {}
        self._replacing: set[asyncio.Task[None]] = set()

    def _create(self, name: str, lane: str, on_large: Callable[[ModelProcess], None]) -> ModelProcess:
        setup = {"name": name, "path": self._paths[name], "paths": self._paths, "lane": lane, **asdict(self._options)}
        return ModelProcess(name, setup, on_large=on_large, **self._settings)

    @property
    def processes(self) -> Mapping[str, ModelProcess]:
        return self._processes

    async def start(self) -> None:
        """Load all models, at the same time. Raises the first error after ending all processes."""
        tasks = [asyncio.ensure_future(process.start()) for process in self.processes.values()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.close()
            raise

    async def verb_process(self, name: str) -> ModelProcess:
        """The process that runs the verbs of a model; the first call starts it. RequestError 503 when that fails."""
        if name not in self._verbs:
            process = self._create(name, "verbs", self._end_verbs)
            self._verbs[name] = process, asyncio.ensure_future(process.start())
        process, starting = entry = self._verbs[name]
        try:
            await asyncio.shield(starting)  # other clients may wait for it too
        except RegardError as error:
            if self._verbs.get(name) is entry:  # the next verb tries again
                del self._verbs[name]
                process.report("model_not_started", reason=str(error))
            raise unavailable(f"the process for verbs of {name} could not be started; try again in a moment") from None
        return process

    def close(self) -> None:
        for task in self._replacing:
            task.cancel()
        for process in (*self.processes.values(), *(process for process, _ in self._verbs.values())):
            process.close()

    def _end_verbs(self, process: ModelProcess) -> None:
        """The next verb starts a new process."""
        del self._verbs[process.name]
        process.close()

    def _replace(self, process: ModelProcess) -> None:
        """Start a new process for the model; from then on it gets the requests, and the old one ends with its last."""

        async def replace() -> None:
            new = self._create(process.name, "serving", self._replace)
            try:
                await new.start()
            except RegardError as error:  # the old one goes on, as large as it is
                return process.report("model_not_started", reason=str(error))
            except asyncio.CancelledError:
                new.close()
                raise
            self._processes[process.name] = new
            await process.retire()

        task = asyncio.ensure_future(replace())
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    def describe(self) -> list[dict[str, Any]]:
        """The models as the server's start message and /health list them."""
        return [
            {"model": process.name, "state": process.state, "operations": process.info.get("operations", [])}
            for process in self.processes.values()
        ]


def model_ids(names: Sequence[str]) -> dict[str, str]:
    """The name by which clients call each model, and where it is: a folder or file has its last part, or what NAME=DIR
    says."""
    paths: dict[str, str] = {}
    for name in names:
        given, _, rest = name.rpartition("=")
        path = rest if given else name
        folder = Path(os.path.expanduser(path))
        identity = given or (folder.resolve().name if folder.exists() else path)
        if paths.setdefault(identity, path) != path:
            raise InputError(
                f"{paths[identity]} and {path} would both be called {identity!r}; give one of them as NAME={path}"
            )
    return {identity: os.path.expanduser(path) for identity, path in paths.items()}


def _which(able: Sequence[AnsweringModel]) -> str:
    names = ", ".join(process.name for process in able)
    return f"Models of this server that can: {names}" if able else "No model of this server can"
