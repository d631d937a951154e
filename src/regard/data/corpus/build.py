"""Builds a corpus: checks the sources, then reads, splits and encodes them shard by shard, in one process or several.

Shards are written atomically and in their order, so a build that was killed resumes after the last complete shard and
produces the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.data.corpus.documents import Source, Sources, find_sources
from regard.data.corpus.folder import (
    REPORT,
    TOKENIZER,
    CorpusCounts,
    CorpusManifest,
    CorpusProgress,
    CorpusReport,
    ShardRecord,
    begin,
    corpus_folder,
    shard_folder,
    source_of,
    tokenizer_digest,
    tokenizer_files,
    tokenizer_paths,
)
from regard.data.corpus.parts import CorpusEncoder, Part, PartReader, find_parts, write_part
from regard.data.corpus.sentences import RULES
from regard.data.corpus.workers import PartJob, PartWorkers, part_workers
from regard.errors import InputError
from regard.events import Note, drain, map_events
from regard.files import storage
from regard.files.checksums import Verify, find_damage
from regard.files.disk import atomic_write, replace_folder
from regard.files.json_files import json_bytes
from regard.text import Tokenizer

SHARD_BYTES = 1 << 24
MAX_WORKERS = 256


def corpus_events(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer,
    key: str = "text",
    shard_bytes: int = SHARD_BYTES,
    workers: int = 1,
    restart: bool = False,
    verify: Verify = "auto",
) -> Generator[CorpusProgress | Note, None, CorpusReport]:
    """Encode text files and folders as token shards in `folder`, for `Corpus.open`.

    Sources are on the disk or on an object store; they are all checked before encoding starts. A shard has complete
    documents, about `shard_bytes` bytes of text. `workers` processes encode; the bytes do not depend on their number. A
    second call builds only what is missing or damaged, and yields a note for each damaged file; with other sources,
    another tokenizer or other settings it is refused unless `restart` deletes the old corpus. `verify` is the same as
    in `Corpus.open`. Sentences are encoded without special tokens; text that looks like one is encoded as text.
    """
    if shard_bytes < 1:
        raise InputError(f"shard_bytes is {shard_bytes}; expected a number of bytes, at least 1")
    if not 1 <= workers <= MAX_WORKERS:
        raise InputError(f"workers is {workers}; expected a number of processes from 1 to {MAX_WORKERS}")
    folder = Path(folder)
    durable = corpus_folder(folder)
    durable.refuse_foreign()
    source_files = find_sources(sources)
    states = list(map(storage.file_identity, source_files.files))
    encoder = CorpusEncoder(tokenizer)
    manifest = CorpusManifest(
        sources=tuple(map(source_of, source_files.files, states)),
        tokenizer=tokenizer_digest(tokenizer),
        vocabulary=tokenizer.size,
        tokenizer_files=tokenizer_files(tokenizer),
        settings={"key": key, "shard_bytes": shard_bytes, "sentence_rules": RULES, "spaces": encoder.spaces},
    )
    with suppress(OSError):  # `lock_folder` reports the error
        folder.parent.mkdir(parents=True, exist_ok=True)
    with durable.locked():
        damaged: list[str] = []
        existing, complete = begin(durable, manifest, restart=restart, verify=verify, on_damaged=damaged.append)
        yield from (Note(message=problem) for problem in damaged)
        resumed = sum((shard.counts for shard in existing), CorpusCounts())
        if complete:
            if damage := find_damage(folder, tokenizer_paths(manifest), verify=verify):
                for name, problem in damage.items():
                    yield Note(message=f"{folder / name} {problem}")
                tokenizer.save(folder / TOKENIZER)
            return _report(source_files, existing, manifest, resumed=resumed, seconds=0.0)
        remedy = f"the finished shards are kept in {folder}: the same command continues"
        with ExitStack() as stack:
            processes = stack.enter_context(part_workers(workers, folder, remedy=remedy)) if workers > 1 else None
            parts = _parts(source_files.files, key, shard_bytes)
            tokenizer.save(folder / TOKENIZER)
            started = time.perf_counter()
            job = _Build(folder, source_files.files, encoder, key, parts)
            shards = yield from job.run(existing, processes)
        if list(map(storage.file_identity, source_files.files)) != states:
            durable.clear()
            raise InputError("a source changed while it was read; the corpus was deleted: build it again")
        report = _report(source_files, shards, manifest, resumed=resumed, seconds=time.perf_counter() - started)
        atomic_write(folder / REPORT, json_bytes(report.json()))
        durable.finish({"shards": [asdict(shard) for shard in shards]})
        return report


def build_corpus(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    on_progress: Callable[[CorpusProgress], None] = lambda progress: None,
    on_damaged: Callable[[str], None] = lambda problem: None,
    **options: Any,
) -> CorpusReport:
    """`corpus_events` run to its end, with the same options; damage that is found is reported to `on_damaged`."""

    def on_event(event: CorpusProgress | Note) -> None:
        if isinstance(event, Note):
            on_damaged(event.message)
        else:
            on_progress(event)

    return drain(corpus_events(sources, folder, **options), on_event)


@dataclass(frozen=True)
class _Build:
    """The shards of all parts."""

    folder: Path
    files: tuple[Source, ...]
    encoder: CorpusEncoder
    key: str
    parts: list[Part]

    def run(
        self, existing: Sequence[ShardRecord], workers: PartWorkers | None
    ) -> Generator[CorpusProgress, None, list[ShardRecord]]:
        """Write the missing shards; return the records of all shards."""
        done = existing[-1].next if existing else (0, 0)
        parts = [part for part in self.parts if part.start.key >= done]
        shards = yield from (self._in_workers(existing, parts, workers) if workers else self._here(existing, parts))
        if not shards:
            raise InputError("the corpus has no tokens: the tokenizer encodes every sentence as nothing")
        return shards

    def _here(
        self, existing: Sequence[ShardRecord], parts: list[Part]
    ) -> Generator[CorpusProgress, None, list[ShardRecord]]:
        shards = list(existing)
        progress = self._progress(existing)
        with closing(PartReader()) as reader:
            for part in parts:
                documents = reader.read(part.files(self.files), part, self.key)
                with suppress(_NoTokens), replace_folder(shard_folder(self.folder, len(shards))) as staging:
                    record = yield from map_events(
                        write_part(documents, part.end, staging, self.encoder),
                        lambda done, shards=shards: progress(shards, *done),  # type: ignore[misc]
                    )
                    if record is None:
                        raise _NoTokens
                    shards.append(record)
        return shards

    def _in_workers(
        self, existing: Sequence[ShardRecord], parts: list[Part], workers: PartWorkers
    ) -> Generator[CorpusProgress, None, list[ShardRecord]]:
        shards = list(existing)
        progress = self._progress(existing)
        for number, record in enumerate(workers.records(self._jobs(parts, workers.scratch))):
            if record is not None:
                with replace_folder(shard_folder(self.folder, len(shards))) as staging:
                    for file in (workers.scratch / str(number)).iterdir():
                        file.rename(staging / file.name)
                shards.append(record)
                yield progress(shards, 0, 0)
        return shards

    def _jobs(self, parts: list[Part], scratch: Path) -> Iterator[PartJob]:
        for number, part in enumerate(parts):
            staging = scratch / str(number)
            staging.mkdir()
            yield PartJob(part.files(self.files), part, self.key, staging, self.folder / TOKENIZER)

    def _progress(self, existing: Sequence[ShardRecord]) -> Callable[[Sequence[ShardRecord], int, int], CorpusProgress]:
        resumed = sum(shard.counts.documents for shard in existing)
        total = sum(part.documents for part in self.parts)

        def progress(shards: Sequence[ShardRecord], documents: int, tokens: int) -> CorpusProgress:
            """The finished shards, and so much of the next one."""
            done = sum(shard.counts.documents for shard in shards) + documents
            tokens += sum(shard.counts.tokens for shard in shards)
            return CorpusProgress(min(done, total), total, resumed, tokens)

        return progress


class _NoTokens(Exception):
    """A part has no tokens, so there is no shard of it."""


def _parts(files: tuple[Source, ...], key: str, shard_bytes: int) -> list[Part]:
    """The parts of all sources. Raises InputError if there is no text."""
    if parts := find_parts(files, key, shard_bytes):
        return parts
    names = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
    raise InputError(f"the corpus is empty: there is no text in {names}; expected paragraphs, one per line")


def _report(
    sources: Sources, shards: list[ShardRecord], manifest: CorpusManifest, *, resumed: CorpusCounts, seconds: float
) -> CorpusReport:
    return CorpusReport(
        counts=sum((shard.counts for shard in shards), CorpusCounts()),
        sources=len(sources.files),
        skipped=tuple(map(str, sources.skipped)),
        shards=len(shards),
        vocabulary=manifest.vocabulary,
        resumed=resumed,
        seconds=seconds,
    )
