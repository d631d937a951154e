"""The models of a server by name, each in processes of its own, and which of them answers a request.

A model has up to two processes: one serves requests that are computed in batches, the other runs verbs, so that a long
verb holds up no other request. The first request that needs a process starts it. Imports no torch.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from regard.checkpoints.packages import packaged_names
from regard.errors import InputError, RegardError, suggest
from regard.inference.model_summary import ModelCapability, ModelSummary, summarize_folder
from regard.known import DEFAULT_MODEL, builtin_names
from regard.server.errors import RequestError, invalid, unavailable
from regard.server.models.process import ModelProcess

Lane = Literal["serving", "verbs"]
# What an operation needs, for the error about a model that lacks it.
NEEDS = {
    "embed": "embed texts",
    "embed_sparse": "embed texts as sparse vectors: that needs a folder of sentence-transformers' SparseEncoder",
    "rerank": "rerank: that needs a model that reads query and text together, a published reranker or one of `regard "
    "train pair` with two classes or `regard train regress`, or a multi-vector model (ColBERT); a model of sentence "
    "vectors answers /similarity",
    "predict": "predict labels: POST /predict takes models of classes of texts or pairs of texts; POST /v1/predict "
    "answers with any model that has a task head",
    "generate": "generate text",
    "chat": "chat: that needs a model with a chat template, such as HuggingFaceTB/SmolLM2-135M-Instruct; "
    "/v1/completions continues a prompt with any model that generates text",
    "tokenize": "tokenize text",
}
# Capabilities without which a model that was not started yet is not started to see whether it has the operation.
LIKELY: dict[str, set[str]] = {
    "embed": {"text-encoder", "causal-lm", "sentence-embedding"},
    "embed_sparse": {"sentence-embedding", "masked-lm"},
    "rerank": {"fine-tuned"},
    "predict": {"fine-tuned"},
    "generate": {"text-generation"},
    "chat": {"text-generation"},
}
UNKNOWN = ModelSummary()
IDLE_SECONDS = 600.0  # after which a process of the studio ends
MAX_IDLE = 4  # processes of the studio that may be idle
IDLE_CHECK_SECONDS = 20.0


@dataclass(frozen=True)
class ModelOptions:
    """How the processes compute: torch threads (0: torch's default), device, precision, tokens per batch (0: what suits
    the device).

    `local`: clients are those who use the page of this machine. They may name any built-in model, errors tell them what
    is wrong with files, and idle processes end. Then 0 threads are one for a small model and all for a larger one.
    """

    threads: int = 0
    device: str = "auto"
    precision: str | None = None
    max_batch_tokens: int = 0
    local: bool = False

    @property
    def server(self) -> str:
        """What errors call it."""
        return "the studio" if self.local else "the server"


class ModelState(ModelSummary):
    """A model as the page lists it. `capabilities` is null for a model of which nothing is known yet; `description`
    says what it suits; `num_attention_heads` is 1 for a recurrent model with attention."""

    name: str
    state: Literal["loading", "ready", "failed"]
    error: str


class ModelRegistry:
    """Models by name, in the order in which they were named. Not thread-safe: use it from one event loop.

    `create` makes a process. A process that ends or is stuck is started again; an idle one that has grown too large is
    replaced.
    """

    def __init__(
        self,
        names: Sequence[str],
        options: ModelOptions | None = None,
        *,
        stuck_seconds: float = math.inf,
        on_batch: Callable[[str, tuple[int, int, int]], None] | None = None,
        on_event: Callable[[Mapping[str, object]], None] | None = None,
        create: Callable[..., ModelProcess] = ModelProcess,
    ) -> None:
        self.options = options or ModelOptions()
        self.paths = {name: name for name in names} if self.options.local else model_ids(names)
        self._settings: dict[str, Any] = {"stuck_seconds": stuck_seconds, "on_batch": on_batch, "on_event": on_event}
        self._create_process = create
        self._running: dict[tuple[str, Lane], ModelProcess] = {}  # also those that are being started
        self._summaries: dict[str, ModelSummary] = {}
        self._errors: dict[str, str] = {}  # of models whose last start failed
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load all models to serve them, at the same time. Raises the first error after ending all processes."""
        starting = [self._begin(name, "serving").starting for name in self.paths]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            self.close()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def prepare(self) -> None:
        """Start the first model for verbs and learn from it what the others can do; those of which that cannot be
        known are started too. Errors are those of the models' states."""
        if self.options.local:
            self._run(self._end_idle())
        for name in list(self.paths):
            if name not in self._summaries:
                with suppress(RegardError):
                    await self.process(name, "verbs")

    async def process(self, name: str, lane: Lane) -> ModelProcess:
        """A process of a model; the first call starts it. RequestError 503 when that fails."""
        process = self._running.get((name, lane)) or self._begin(name, lane)
        try:
            await asyncio.shield(process.starting)  # other clients may wait for it too
        except RegardError as error:
            reason = str(error).removeprefix(f"{name} cannot be served: ")
            if self._running.get((name, lane)) is process:  # the next request tries again
                del self._running[name, lane]
                self._errors[name] = reason
                process.report("model_not_started", reason=str(error))
            if self.options.local:
                raise InputError(f"{name} could not be loaded: {reason}") from None
            purpose = "verbs of " if lane == "verbs" else ""
            raise unavailable(f"the process for {purpose}{name} could not be started; try again in a moment") from None
        return process

    def is_running(self, name: str, lane: Lane) -> bool:
        return (name, lane) in self._running

    async def any_process(self, lane: Lane) -> ModelProcess:
        """A process that runs, for what every one of them can answer; that of the first model if there is none."""
        for (_, one), process in self._running.items():
            if one == lane and process.starting.done() and process.state == "ready":
                return process
        return await self.process(next(iter(self.paths), None) or self.named(DEFAULT_MODEL), lane)

    def named(self, name: str) -> str:
        """The name, if the server has such a model; in the studio also that of one that comes with Regard. RequestError
        404 for others, in the studio InputError."""
        if self.options.local and name not in self.paths and name in (*builtin_names(), *packaged_names()):
            self.paths = {**self.paths, name: name}
        if name in self.paths:
            return name
        message = f"{self.options.server} has no model {name[:200]!r}; {suggest(name[:200], self.paths)}"
        if self.options.local:
            raise InputError(message)
        raise RequestError(404, message, param="model", code="model_not_found")

    async def choose(self, operation: str, name: str | None = None) -> ModelProcess:
        """The process that answers: that of the named model, or of the first that can. A model trained for sentence
        vectors comes before others that embed. RequestError names the models that can when this one cannot."""
        if name is not None:
            process = await self.process(self.named(name), "serving")
            if operation not in process.info["operations"]:
                able = [one.name for one in self.serving() if operation in one.info["operations"]]
                which = f"Models of this server that can: {', '.join(able)}" if able else "No model of this server can"
                task = process.info.get("task")
                what = f"{name}, a model for {task}," if task else name
                raise invalid(f"{what} cannot {NEEDS[operation]}. {which}", param="model")
            return process
        names = [one for one in self.paths if self._may(operation, one)]
        if operation == "embed":
            names.sort(key=lambda one: "sentence-embedding" not in (self._summary(one).capabilities or ()))
        for one in names:
            with suppress(InputError):  # a model of the studio that cannot be loaded
                process = await self.process(one, "serving")
                if operation in process.info["operations"]:
                    return process
        raise invalid(f"no model of this server can {NEEDS[operation]}. Its models: {', '.join(self.paths)}")

    def serving(self) -> list[ModelProcess]:
        """The processes that serve and have been started, in the order of the models."""
        processes = [self._running.get((name, "serving")) for name in self.paths]
        return [process for process in processes if process is not None and process.starting.done()]

    def states(self) -> list[ModelState]:
        """The models for the page. Loading is one that is being started, or of which nothing is known yet."""
        found = []
        for name in self.paths:
            summary, error = self._summary(name), self._errors.get(name, "")
            process = self._running.get((name, "verbs"))
            loading = summary.capabilities is None or (process is not None and not process.starting.done())
            state: Any = "failed" if error else "loading" if loading else "ready"
            found.append(ModelState(name=name, state=state, error=error, **dict(summary)))
        return found

    def capabilities(self, name: str) -> list[ModelCapability] | None:
        """What a model can do, also one that is not among those of the server; None if that is not known."""
        return self._summary(name).capabilities or summarize_folder(self.paths.get(name, name)).capabilities

    async def add(self, name: str) -> None:
        """Add a model, or load it again, and start it. Raises RegardError when it cannot be loaded."""
        for process in [one for one in self._running.values() if one.name == name]:
            self._end(process)
        self.paths = {**self.paths, name: name}
        await self.process(name, "verbs")

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for process in self._running.values():
            process.starting.cancel()
            process.close()

    def describe(self) -> list[dict[str, Any]]:
        """The models as the server's start message lists them."""
        return [
            {"model": process.name, "state": process.state, "operations": process.info.get("operations", [])}
            for process in self.serving()
        ]

    def _begin(self, name: str, lane: Lane) -> ModelProcess:
        """A new process of a model, which is being started."""
        process = self._running[name, lane] = self._create(name, lane)
        process.starting = asyncio.ensure_future(self._start(process))
        return process

    async def _start(self, process: ModelProcess) -> None:
        await process.start()
        self._errors.pop(process.name, None)
        info = {field: process.info[field] for field in ModelSummary.model_fields}
        self._summaries[process.name] = ModelSummary(**info)
        unknown = {name: path for name, path in self.paths.items() if name not in self._summaries}
        if self.options.local and unknown:
            summaries, _ = await process.call("", "summaries", {"paths": unknown})
            for name, summary in summaries.items():
                if summary["capabilities"] is not None:
                    self._summaries[name] = ModelSummary(**summary)

    def _create(self, name: str, lane: Lane) -> ModelProcess:
        setup = {"name": name, "path": self.paths[name], "lane": lane, **asdict(self.options)}
        on_large = self._replace if lane == "serving" else self._end
        return self._create_process(name, setup, on_large=on_large, **self._settings)

    def _summary(self, name: str) -> ModelSummary:
        return self._summaries.get(name, UNKNOWN)

    def _may(self, operation: str, name: str) -> bool:
        """Whether a model may have an operation: of one that does not serve yet, only its capabilities are known."""
        process = self._running.get((name, "serving"))
        if process is not None and "operations" in process.info:
            return operation in process.info["operations"]
        known = self._summary(name).capabilities
        return known is None or operation not in LIKELY or not LIKELY[operation].isdisjoint(known)

    def _end(self, process: ModelProcess) -> None:
        """End a process; the next request that needs it starts a new one."""
        self._running.pop((process.name, process.setup["lane"]), None)
        process.close()

    async def _end_idle(self) -> None:
        """End processes that nobody has used for long, and those used longest ago of more than MAX_IDLE."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            idle = [one for one in self._running.values() if one.starting.done() and not one.in_flight]
            idle.sort(key=lambda one: one.last_used)
            for position, process in enumerate(idle):
                if position < len(idle) - MAX_IDLE or loop.time() - process.last_used > IDLE_SECONDS:
                    self._end(process)

    def _replace(self, process: ModelProcess) -> None:
        """Start a new process for the model; from then on it gets the requests, and the old one ends with its last."""

        async def replace() -> None:
            new = self._create(process.name, "serving")
            try:
                await new.start()
            except RegardError as error:  # the old one goes on, as large as it is
                return process.report("model_not_started", reason=str(error))
            except asyncio.CancelledError:
                new.close()
                raise
            new.starting = process.starting
            self._running[process.name, "serving"] = new
            await process.retire()

        self._run(replace())

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
