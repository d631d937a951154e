"""The engines of `benchmarks.embed` in processes of their own, as they are used.

In one process the thread pools of several engines slow each other down: OpenMP sees more threads than cores and lets
idle ones sleep at once, so that every small operation has to wake one. MiniLM in int8 embeds 670 sentences per second
with Regard beside nine other engines, and 870 alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.embed_engines import ENGINES, BatchedEngine, Embed, EngineFiles, Vectors
from regard.errors import InputError

WARM_UP = 5  # calls before those that count


class TimedEngine:
    """An engine in this process."""

    def __init__(self, embed: Embed) -> None:
        self.embed = embed

    def choose_batch_size(self, texts: Sequence[str]) -> int | None:
        """Choose the fastest tokens per batch, for an engine that does not choose its own."""
        if not isinstance(self.embed, BatchedEngine):
            return None
        self.embed.choose_batch_size(texts)
        return self.embed.tokens_per_batch

    def vectors(self, texts: Sequence[str]) -> Vectors:
        return self.embed(texts)

    def seconds(self, texts: Sequence[str], calls: int = 1) -> list[float]:
        """The seconds of each call; several calls follow others that do not count."""
        found = []
        for _ in range(calls + (WARM_UP if calls > 1 else 0)):
            begin = time.perf_counter()
            self.embed(texts)
            found.append(time.perf_counter() - begin)
        return found[-calls:]


class EngineProcess(TimedEngine):
    """An engine in another process. Its constructor raises InputError if the engine cannot be used here."""

    def __init__(self, name: str, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_run_engine, args=(name, folder, other), daemon=True)
        self.process.start()
        other.close()
        problem = self.connection.recv()
        if problem:
            raise InputError(problem)

    def choose_batch_size(self, texts: Sequence[str]) -> int | None:
        size: int | None = self._call("choose_batch_size", texts)
        return size

    def vectors(self, texts: Sequence[str]) -> Vectors:
        vectors: Vectors = self._call("vectors", texts)
        return vectors

    def seconds(self, texts: Sequence[str], calls: int = 1) -> list[float]:
        seconds: list[float] = self._call("seconds", texts, calls)
        return seconds

    def close(self) -> None:
        self.connection.close()
        self.process.join()

    def _call(self, method: str, *arguments: object) -> Any:
        self.connection.send((method, arguments))
        return self.connection.recv()


def _run_engine(name: str, folder: Path, connection: Connection) -> None:
    """Load an engine and answer the calls of an `EngineProcess`, until it closes the connection."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            engine = TimedEngine(ENGINES[name](EngineFiles(folder, Path(scratch))))
        except (ImportError, InputError) as error:
            connection.send(str(error).splitlines()[0])
            return
        connection.send("")
        try:
            while True:
                method, arguments = connection.recv()
                connection.send(getattr(engine, method)(*arguments))
        except (EOFError, KeyboardInterrupt):
            return
