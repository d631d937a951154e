"""Builds a corpus: checks the sources, then reads, splits and encodes them shard by shard.

Shards are written atomically, so a build that was killed resumes after the last complete shard and produces the same
bytes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from regard.data.corpus.documents import Document, Sources, find_sources, read_file_documents
from regard.data.corpus.folder import (
    REPORT,
    TOKENIZER,
    CorpusCounts,
    CorpusManifest,
    CorpusProgress,
    CorpusReport,
    ShardRecord,
    ShardWriter,
    begin,
    clear,
    leave,
    refuse_foreign_files,
    shard_folder,
    source_of,
    token_type,
    tokenizer_digest,
    tokenizer_files,
    tokenizer_paths,
)
from regard.data.corpus.sentences import RULES, split_sentences
from regard.errors import InputError
from regard.events import Note, drain
from regard.files.checksums import Verify, find_damage
from regard.files.disk import atomic_write, replace_folder
from regard.files.json_files import json_bytes
from regard.files.output_folder import lock_folder
from regard.text import Tokenizer

SHARD_BYTES = 1 << 24
BATCH = 1 << 20  # bytes of text to encode at once
PROBE = "a b\nc"
MAX_CORES = 2  # encode by word up to this many cores
MAX_WORDS = 1 << 19  # cached words, about 150 MB
Position = tuple[int, int]  # index of a source, and the number of its documents that are done
PositionedDocument = tuple[Document, Position]  # with the position after it
_split_words: Callable[[str], list[str]] = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]").findall


class CorpusEncoder:
    """Splits documents into sentences and encodes the sentences of many documents, without special tokens.

    The `tokenizers` library encodes sentences on all cores. With one or two cores, it is faster to encode WordPiece by
    word and to cache the ids of each word; the ids are the same, because in BERT's pipeline no token crosses a space
    or a punctuation mark. `spaces` is True if the tokenizer preserves whitespace, as byte-level tokenizers do. Then a
    sentence includes the space or line break before it, and the ids of a document are those of its complete text.
    """

    def __init__(self, tokenizer: Tokenizer, *, cores: int | None = None) -> None:
        self.unknown = tokenizer.unk_token_id
        self.spaces = tokenizer.decode(tokenizer.encode(PROBE, add_special_tokens=False).ids) == PROBE
        # In this copy, text that looks like a special token ("[MASK]") is encoded as text.
        self._pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        self._pipeline.encode_special_tokens = True
        self._by_words = (cores or os.cpu_count() or 1) <= MAX_CORES and _is_bert(self._pipeline)
        self._words: dict[str, list[int]] = {}

    def sentences(self, document: Document) -> list[str]:
        """Return the sentences of a document, with the whitespace before them if the tokenizer preserves it."""
        sentences = []
        for number, paragraph in enumerate(document.paragraphs):
            end = 0
            for start, stop in split_sentences(paragraph):
                if not self.spaces:
                    sentences.append(paragraph[start:stop])
                else:
                    sentences.append(("\n" if number and not start else "") + paragraph[end:stop])
                end = stop
        return sentences

    def encode(self, documents: Sequence[list[str]]) -> list[list[list[int]]]:
        """Return the ids of each sentence of each document."""
        if not self._by_words:
            ids = iter(self._ids([sentence for document in documents for sentence in document]))
            return [[next(ids) for _ in document] for document in documents]
        split = [[_split_words(sentence) for sentence in document] for document in documents]
        if len(self._words) > MAX_WORDS:
            self._words.clear()
        words = set(chain.from_iterable(chain.from_iterable(split)))
        new = sorted(words.difference(self._words))
        self._words.update(zip(new, self._ids(new), strict=True))
        known = self._words.__getitem__
        return [[list(chain.from_iterable(map(known, parts))) for parts in document] for document in split]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._pipeline.encode_batch_fast(texts, add_special_tokens=False)]


def text_bytes(document: Document) -> int:
    """Return the number of UTF-8 bytes in the paragraphs of a document."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in document.paragraphs)


def _is_bert(pipeline: tokenizers.Tokenizer) -> bool:
    """Return whether a text can be encoded by the parts between ASCII spaces and punctuation marks."""
    return (
        isinstance(pipeline.model, models.WordPiece)
        and isinstance(pipeline.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(pipeline.normalizer, normalizers.BertNormalizer)
        # Added tokens that are not special may contain spaces.
        and all(token.special for token in pipeline.get_added_tokens_decoder().values())
    )


class _NoTokens(Exception):
    """The remaining sources have no tokens."""


def corpus_events(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer,
    key: str = "text",
    shard_bytes: int = SHARD_BYTES,
    restart: bool = False,
    verify: Verify = "auto",
) -> Generator[CorpusProgress | Note, None, CorpusReport]:
    """Encode text files and folders as token shards in `folder`, for `Corpus.open`.

    All sources are checked before encoding starts. A shard has complete documents, about `shard_bytes` bytes of text. A
    second call builds only what is missing or damaged, and yields a note for each damaged file; with other sources,
    another tokenizer or other settings it is refused unless `restart` deletes the old corpus. `verify` is the same as
    in `Corpus.open`. Sentences are encoded without special tokens; text that looks like one is encoded as text.
    """
    if shard_bytes < 1:
        raise InputError(f"shard_bytes is {shard_bytes}; expected a number of bytes, at least 1")
    folder = Path(folder)
    refuse_foreign_files(folder)
    source_files = find_sources(sources)
    states = [_state(path) for path in source_files.files]
    encoder = CorpusEncoder(tokenizer)
    manifest = CorpusManifest(
        sources=tuple(source_of(path) for path in source_files.files),
        tokenizer=tokenizer_digest(tokenizer),
        vocabulary=tokenizer.size,
        tokenizer_files=tokenizer_files(tokenizer),
        settings={"key": key, "shard_bytes": shard_bytes, "sentence_rules": RULES, "spaces": encoder.spaces},
    )
    with suppress(OSError):  # `lock_folder` reports the error
        folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        try:
            damaged: list[str] = []
            existing, complete = begin(folder, manifest, restart=restart, verify=verify, on_damaged=damaged.append)
            yield from (Note(message=problem) for problem in damaged)
            resumed = sum((shard.counts for shard in existing), CorpusCounts())
            if complete:
                if damage := find_damage(folder, tokenizer_paths(manifest), verify=verify):
                    for name, problem in damage.items():
                        yield Note(message=f"{folder / name} {problem}")
                    tokenizer.save(folder / TOKENIZER)
                return _report(source_files, existing, manifest, resumed=resumed, seconds=0.0)
            total = _count(source_files.files, key)
            tokenizer.save(folder / TOKENIZER)
            started = time.perf_counter()
            job = _Job(folder, source_files.files, encoder, key, shard_bytes, total)
            shards = yield from job.run(existing, token_type(tokenizer.size))
            if [_state(path) for path in source_files.files] != states:
                clear(folder)
                raise InputError("a source changed while it was read; the corpus was deleted: build it again")
            report = _report(source_files, shards, manifest, resumed=resumed, seconds=time.perf_counter() - started)
            atomic_write(folder / REPORT, json_bytes(report.json()))
            replace(manifest, shards=tuple(shards)).write(folder)
            return report
        finally:
            leave(folder)


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
class _Job:
    """One pass over the sources."""

    folder: Path
    files: tuple[Path, ...]
    encoder: CorpusEncoder
    key: str
    shard_bytes: int
    documents: int

    def run(
        self, existing: list[ShardRecord], dtype: np.dtype[Any]
    ) -> Generator[CorpusProgress, None, list[ShardRecord]]:
        """Write the missing shards; return the records of all shards."""
        shards = list(existing)
        stream = _documents(self.files, existing[-1].next if existing else (0, 0), self.key)
        while (first := next(stream, None)) is not None:
            with suppress(_NoTokens), replace_folder(shard_folder(self.folder, len(shards))) as staging:
                writer = ShardWriter(staging, dtype=dtype, unknown=self.encoder.unknown)
                try:
                    record = yield from self._fill(writer, chain([first], stream), existing, shards)
                finally:
                    writer.close()
                shards.append(record)
        if not shards:
            raise InputError("the corpus has no tokens: the tokenizer encodes every sentence as nothing")
        return shards

    def _fill(
        self,
        writer: ShardWriter,
        stream: Iterator[PositionedDocument],
        existing: list[ShardRecord],
        shards: list[ShardRecord],
    ) -> Generator[CorpusProgress, None, ShardRecord]:
        resumed = sum(shard.counts.documents for shard in existing)
        done = sum(shard.counts.documents for shard in shards)
        previous_tokens = sum(shard.counts.tokens for shard in shards)
        batch: list[list[str]] = []
        paragraphs = size = pending = documents = 0
        position = (0, 0)

        def flush() -> CorpusProgress:
            writer.add(self.encoder.encode(batch))
            batch.clear()
            tokens = previous_tokens + writer.tokens
            return CorpusProgress(min(done + documents, self.documents), self.documents, resumed, tokens)

        for document, position in stream:  # noqa: B007 (used after the loop)
            batch.append(self.encoder.sentences(document))
            documents += 1
            paragraphs += len(document.paragraphs)
            document_bytes = text_bytes(document)
            size, pending = size + document_bytes, pending + document_bytes
            if pending >= BATCH or size >= self.shard_bytes:
                yield flush()
                pending = 0
            if size >= self.shard_bytes and writer.tokens:
                break
        yield flush()
        if not writer.tokens:
            raise _NoTokens
        return writer.finish(paragraphs=paragraphs, size=size, next=position)


def _documents(files: tuple[Path, ...], start: Position, key: str) -> Iterator[PositionedDocument]:
    """Yield the documents after `start`, each with the position after it."""
    for source in range(start[0], len(files)):
        skip = start[1] if source == start[0] else 0
        for number, document in islice(enumerate(read_file_documents(files[source], key=key), start=1), skip, None):
            yield document, (source, number)


def _count(files: tuple[Path, ...], key: str) -> int:
    """Count the documents. Reading all sources first finds a damaged line before hours of encoding."""
    count = sum(1 for path in files for _ in read_file_documents(path, key=key))
    if not count:
        names = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
        raise InputError(f"the corpus is empty: there is no text in {names}; expected paragraphs, one per line")
    return count


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


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
