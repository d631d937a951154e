"""Several processes build one corpus: each reads and encodes whole parts of the text and writes their shards.

This process only says which parts there are, and gives the finished shards their names, in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.corpus.documents import Source
from regard.data.corpus.folder import ShardRecord
from regard.data.corpus.parts import CorpusEncoder, Part, PartReader, write_part
from regard.events import drain
from regard.files.disk import scratch_folder
from regard.text import Tokenizer
from regard.worker_pool import Work, WorkerPool


@dataclass
class WorkerState:
    """What a worker keeps between jobs."""

    encoders: dict[Path, CorpusEncoder] = field(default_factory=dict)  # by the folder of the tokenizer
    reader: PartReader = field(default_factory=PartReader)


@dataclass(frozen=True)
class PartJob:
    """Write the shard of a part into the folder `staging`, which exists; returns its record, if it has tokens."""

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


@dataclass(frozen=True)
class PartWorkers:
    """Processes that write shards of parts to folders in `scratch`."""

    pool: WorkerPool
    scratch: Path

    def records(self, jobs: Iterable[PartJob]) -> Generator[ShardRecord | None]:
        """Do the jobs; yields the records of their shards in the order of the jobs."""
        done: dict[int, list[ShardRecord | None]] = {}
        following = 0
        for number, reply in self.pool.run(enumerate(jobs)):
            if reply is not None:
                done[number] = reply
            while following in done:
                yield from done.pop(following)
                following += 1


@contextmanager
def part_workers(count: int, folder: Path, *, remedy: str) -> Iterator[PartWorkers]:
    """Processes for the length of a `with` block; `remedy` ends the message about one that died."""
    pool = WorkerPool(
        [("a worker process", _load)] * count,
        advice=f"there may be too little memory for so many --workers; {remedy}",
        environment={"TOKENIZERS_PARALLELISM": "false"},
    )
    with scratch_folder(folder / "parts") as scratch, pool:  # removed when no process writes there any more
        yield PartWorkers(pool, scratch)


def _load() -> Work:
    state = WorkerState()
    return lambda job, reply: reply([job.run(state)])
