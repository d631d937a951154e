"""Several processes build one corpus: each reads and encodes whole parts of the text and writes their shards.

This process only says which parts there are, and gives the finished shards their names, in order. A worker is the
program `regard.data.corpus.worker`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from regard.data.corpus.documents import Source
from regard.data.corpus.encoder import CorpusEncoder
from regard.data.corpus.folder import ShardRecord
from regard.data.corpus.parts import Part, PartReader, write_part
from regard.events import drain
from regard.text import Tokenizer
from regard.worker_process import WorkerFailure, WorkerProcess


@dataclass
class WorkerState:
    """What a worker keeps between jobs."""

    encoders: dict[Path, CorpusEncoder] = field(default_factory=dict)  # by the folder of the tokenizer
    reader: PartReader = field(default_factory=PartReader)


@dataclass(frozen=True)
class PartJob:
    """Write the shard of a part into the folder `staging`, which exists; the result is its record, if it has tokens."""

    files: tuple[Source, ...]  # that hold the part
    part: Part
    key: str
    staging: Path
    tokenizer: Path

    def run(self, state: WorkerState) -> ShardRecord | None:
        if self.tokenizer not in state.encoders:
            state.encoders[self.tokenizer] = CorpusEncoder(Tokenizer.open(self.tokenizer))
        documents = state.reader.read(self.files, self.part, self.key)
        steps = write_part(documents, self.part.end, self.staging, state.encoders[self.tokenizer])
        return drain(steps, lambda progress: None)


class Workers:
    """Worker processes, for the length of a `with` block. None is left behind, however it ends."""

    def __init__(self, count: int, *, remedy: str) -> None:
        self._count, self._remedy = count, remedy
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._workers.append(self._start())
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            for worker in self._workers:
                worker.finish()
        self._kill()

    @contextmanager
    def killed_on_error(self) -> Iterator[None]:
        """On an error the processes end at once, so that the folders they write to can be removed."""
        try:
            yield
        except BaseException:
            self._kill()
            raise

    def results(self, jobs: Iterable[PartJob]) -> Generator[Any]:
        """Do the jobs, one at a time in each process, and yield their results in the order of the jobs.

        The error of the first job that fails is raised, as in one process.
        """
        waiting = enumerate(jobs)
        idle, busy = list(self._workers), dict[Connection, WorkerProcess]()
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
                if isinstance(result, WorkerFailure):
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

    def _start(self) -> WorkerProcess:
        return WorkerProcess(
            "regard.data.corpus.worker",
            name="a worker process",
            advice=f"there may be too little memory for so many --workers; {self._remedy}",
            environment={"TOKENIZERS_PARALLELISM": "false"},
        )
