"""Several processes encode one corpus: this process reads the text and writes the folder, the others encode parts.

A worker is the program `regard.data.corpus.worker`, so a script of the user is not run a second time. Messages are
pickled, and only those of a worker that this process has started, over its own pipes, are unpickled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from regard.data.corpus.documents import Source
from regard.data.corpus.encoder import CorpusEncoder
from regard.data.corpus.folder import ShardRecord
from regard.data.corpus.parts import PositionedDocument, count_documents, write_part
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.text import Tokenizer

WAIT = 10.0  # seconds for a worker to end before it is killed


class Job(Protocol):
    """What a worker does; it is pickled. `state` is what the worker keeps between jobs."""

    def run(self, state: dict[Path, CorpusEncoder]) -> object: ...


@dataclass(frozen=True)
class CountJob:
    """Count the documents of a file."""

    path: Source
    key: str

    def run(self, state: dict[Path, CorpusEncoder]) -> int:
        return count_documents(self.path, self.key)


@dataclass(frozen=True)
class PartJob:
    """Write the shard of a part into the folder `staging`, which exists; the result is its record, if it has tokens."""

    documents: tuple[PositionedDocument, ...]
    staging: Path
    tokenizer: Path

    def run(self, state: dict[Path, CorpusEncoder]) -> ShardRecord | None:
        if self.tokenizer not in state:
            state[self.tokenizer] = CorpusEncoder(Tokenizer.open(self.tokenizer), cores=1)
        return drain(write_part(iter(self.documents), self.staging, state[self.tokenizer]), lambda progress: None)


@dataclass(frozen=True)
class JobFailure:
    """An exception in a worker."""

    kind: Literal["input", "regard", "os", "bug"]
    message: str
    traceback: str = ""
    errno: int | None = None

    def error(self) -> Exception:
        """The exception for the user, with the same message as in one process."""
        match self.kind:
            case "input":
                return InputError(self.message)
            case "regard":
                return RegardError(self.message)
            case "os":
                return OSError(self.errno, self.message)
        error = RuntimeError(self.message)
        error.add_note(self.traceback)
        return error


class Workers:
    """Worker processes, for the length of a `with` block. None is left behind, however it ends."""

    def __init__(self, count: int, *, remedy: str) -> None:
        self._count, self._remedy = count, remedy
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._workers.append(_Worker(self._remedy))
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            for worker in self._workers:
                worker.finish()
        self._kill()

    def results(self, jobs: Iterable[Job]) -> Generator[Any]:
        """Do the jobs, one at a time in each process, and yield their results in the order of the jobs.

        The error of the first job that fails is raised, as in one process.
        """
        waiting = enumerate(jobs)
        idle, busy = list(self._workers), dict[Connection, _Worker]()
        done: dict[int, Any] = {}
        following = 0
        job = next(waiting, None)
        while job is not None or busy or following in done:
            while idle and job is not None:
                worker = idle.pop()
                worker.send(job)
                busy[worker.receiver] = worker
                job = next(waiting, None)
            while following in done:
                result = done.pop(following)
                if isinstance(result, JobFailure):
                    raise result.error()
                yield result
                following += 1
            for receiver in wait(list(busy)) if busy else []:
                assert isinstance(receiver, Connection)
                worker = busy.pop(receiver)
                number, result = worker.receive()
                done[number] = result
                idle.append(worker)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Worker:
    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        # It imports the same modules as this process, and -P keeps those of the current folder out. Ctrl-C in a
        # terminal does not reach it: this process ends it.
        path = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "regard.data.corpus.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
                process_group=0,
            )
        except OSError as error:
            raise RegardError(
                f"a worker process could not be started ({error.strerror or error}); use fewer --workers"
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._sender = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self.receiver = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()

    def send(self, message: object) -> None:
        try:
            self._sender.send(message)
        except OSError:
            raise self._died() from None

    def receive(self) -> tuple[int, Any]:
        try:
            number, result = self.receiver.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return number, result

    def finish(self) -> None:
        self._sender.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(WAIT)

    def kill(self) -> None:
        self._sender.close()
        self.receiver.close()
        self._process.kill()
        self._process.wait()

    def _died(self) -> RegardError:
        try:
            code = self._process.wait(WAIT)
        except subprocess.TimeoutExpired:
            code = 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return RegardError(
            f"a worker process ended unexpectedly ({how}); there may be too little memory for so many --workers; "
            f"{self._remedy}"
        )
