"""The build: check the sources, then read, split and encode them shard by shard.

Prints nothing: the caller is told of progress. A shard is on the disk whole or not at all, so a build that was killed
goes on behind the last whole shard, and ends with the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus.documents import Document, Sources, find_sources, read_file_documents
from regard.data.corpus.encoder import CorpusEncoder, text_bytes
from regard.data.corpus.folder import (
    REPORT,
    TOKENIZER,
    CorpusManifest,
    CorpusProgress,
    CorpusReport,
    begin,
    clear,
    leave,
    refuse_foreign_files,
    shard_folder,
    source_of,
    tokenizer_digest,
    tokenizer_files,
    tokenizer_paths,
)
from regard.data.corpus.sentences import RULES
from regard.data.corpus.shards import CorpusCounts, ShardRecord, ShardWriter, token_type
from regard.errors import InputError
from regard.files.checksums import Verify, find_damage
from regard.files.disk import atomic_write, replace_folder
from regard.files.folder_lock import lock_folder
from regard.files.json_files import json_bytes
from regard.text import Tokenizer

__all__ = ["SHARD_BYTES", "build_corpus"]

SHARD_BYTES = 1 << 24
BATCH = 1 << 20  # bytes of text that are encoded at once
Position = tuple[int, int]  # a source, and how many of its documents are done
Placed = tuple[Document, Position]


class _NoToken(Exception):
    """The rest of the sources has not one token."""


def build_corpus(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer,
    key: str = "text",
    shard_bytes: int = SHARD_BYTES,
    restart: bool = False,
    verify: Verify = "auto",
    on_progress: Callable[[CorpusProgress], None] | None = None,
    on_damaged: Callable[[str], None] = lambda problem: None,
) -> CorpusReport:
    """Turn text files and folders into token shards in `folder`, for `Corpus.open`; returns what is in them.

    What can be wrong with the sources is found before the long work. A shard holds whole documents, about `shard_bytes`
    bytes of text. The same call again does only what is missing or damaged, and describes damage to `on_damaged`; with
    other sources, another tokenizer or other settings it is refused unless `restart` throws the old corpus away.
    `verify` is that of `Corpus.open`. Ids are those of sentences, without special tokens; text that spells one is
    encoded as text.
    """
    if shard_bytes < 1:
        raise InputError(f"shard_bytes is {shard_bytes}; expected a number of bytes, at least 1")
    folder = Path(folder)
    refuse_foreign_files(folder)
    found = find_sources(sources)
    states = [_state(path) for path in found.files]
    encoder = CorpusEncoder(tokenizer)
    manifest = CorpusManifest(
        sources=tuple(source_of(path) for path in found.files),
        tokenizer=tokenizer_digest(tokenizer),
        vocabulary=tokenizer.size,
        tokenizer_files=tokenizer_files(tokenizer),
        settings={"key": key, "shard_bytes": shard_bytes, "sentence_rules": RULES, "spaces": encoder.spaces},
    )
    with suppress(OSError):  # `locked` says what is wrong
        folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        try:
            before, complete = begin(folder, manifest, restart=restart, verify=verify, on_damaged=on_damaged)
            resumed = sum((shard.counts for shard in before), CorpusCounts())
            if complete:
                if damage := find_damage(folder, tokenizer_paths(manifest), verify=verify):
                    for name, what in damage.items():
                        on_damaged(f"{folder / name} {what}")
                    tokenizer.save(folder / TOKENIZER)
                return _report(found, before, manifest, resumed=resumed, seconds=0.0)
            total = _count(found.files, key)
            tokenizer.save(folder / TOKENIZER)
            started = time.perf_counter()
            job = _Job(folder, found.files, encoder, key, shard_bytes, total, on_progress)
            shards = job.run(before, token_type(tokenizer.size))
            if [_state(path) for path in found.files] != states:
                clear(folder)
                raise InputError("a source was changed while it was read; nothing is kept: build the corpus again")
            report = _report(found, shards, manifest, resumed=resumed, seconds=time.perf_counter() - started)
            atomic_write(folder / REPORT, json_bytes(report.json()))
            replace(manifest, shards=tuple(shards)).write(folder)
            return report
        finally:
            leave(folder)


@dataclass(frozen=True)
class _Job:
    """One run through the sources."""

    folder: Path
    files: tuple[Path, ...]
    encoder: CorpusEncoder
    key: str
    shard_bytes: int
    documents: int
    on_progress: Callable[[CorpusProgress], None] | None

    def run(self, before: list[ShardRecord], dtype: np.dtype[Any]) -> list[ShardRecord]:
        """All shards: those that are there, and the missing ones, which are made."""
        shards = list(before)
        stream = _documents(self.files, before[-1].next if before else (0, 0), self.key)
        while (first := next(stream, None)) is not None:
            with suppress(_NoToken), replace_folder(shard_folder(self.folder, len(shards))) as staging:
                writer = ShardWriter(staging, dtype=dtype, unknown=self.encoder.unknown)
                try:
                    record = self._fill(writer, chain([first], stream), before, shards)
                finally:
                    writer.close()
                shards.append(record)
        if not shards:
            raise InputError("the corpus has no text for this tokenizer: not one of its sentences has a token")
        return shards

    def _fill(
        self, writer: ShardWriter, stream: Iterator[Placed], before: list[ShardRecord], shards: list[ShardRecord]
    ) -> ShardRecord:
        resumed = sum(shard.counts.documents for shard in before)
        done = sum(shard.counts.documents for shard in shards)
        earlier = sum(shard.counts.tokens for shard in shards)
        group: list[list[str]] = []
        paragraphs = size = pending = documents = 0
        behind = (0, 0)

        def flush() -> None:
            writer.add(self.encoder.encode(group))
            group.clear()
            if self.on_progress is not None:
                tokens = earlier + writer.tokens
                self.on_progress(CorpusProgress(min(done + documents, self.documents), self.documents, resumed, tokens))

        for document, place in stream:
            behind = place
            group.append(self.encoder.sentences(document))
            documents += 1
            paragraphs += len(document.paragraphs)
            more = text_bytes(document)
            size, pending = size + more, pending + more
            if pending >= BATCH or size >= self.shard_bytes:
                flush()
                pending = 0
            if size >= self.shard_bytes and writer.tokens:
                break
        flush()
        if not writer.tokens:
            raise _NoToken
        return writer.finish(paragraphs=paragraphs, size=size, next=behind)


def _documents(files: tuple[Path, ...], start: Position, key: str) -> Iterator[Placed]:
    """The documents from a place on, each with the place behind it."""
    for source in range(start[0], len(files)):
        skip = start[1] if source == start[0] else 0
        for number, document in islice(enumerate(read_file_documents(files[source], key=key), start=1), skip, None):
            yield document, (source, number)


def _count(files: tuple[Path, ...], key: str) -> int:
    """Read everything once, for a damaged line at the end should not be found after hours."""
    count = sum(1 for path in files for _ in read_file_documents(path, key=key))
    if not count:
        names = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
        raise InputError(f"the corpus is empty: there is no text in {names}; expected paragraphs, one a line")
    return count


def _report(
    found: Sources, shards: list[ShardRecord], manifest: CorpusManifest, *, resumed: CorpusCounts, seconds: float
) -> CorpusReport:
    return CorpusReport(
        counts=sum((shard.counts for shard in shards), CorpusCounts()),
        sources=len(found.files),
        skipped=tuple(map(str, found.skipped)),
        shards=len(shards),
        vocabulary=manifest.vocabulary,
        resumed=resumed,
        seconds=seconds,
    )


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
