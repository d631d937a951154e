"""The parts of a text: where the documents of each shard are, and how they are encoded and written.

Where a part ends depends on the text alone, so a corpus has the same parts whoever encodes them, and any process can
read a part without the text before it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import IO

import tokenizers

from regard.data.compression import DAMAGE
from regard.data.corpus.documents import Document, Source, parse_documents
from regard.data.corpus.folder import ShardRecord, ShardWriter, token_type
from regard.data.corpus.sentences import split_sentences
from regard.data.files import damaged, decode_lines, display_name, open_bytes
from regard.errors import InputError
from regard.text import Tokenizer
from regard.text.word_cache import Ids, Sizes, WordCache, flatten

BATCH = 1 << 20  # bytes of text to encode at once
PROBE = "a b\nc"


@dataclass(frozen=True)
class Position:
    """A place between two documents: the index of a source, and how much of it is before."""

    source: int = 0
    documents: int = 0
    lines: int = 0
    bytes: int = 0  # decompressed

    @property
    def key(self) -> tuple[int, int]:
        """The source and the documents, which name the position in the record of a shard."""
        return self.source, self.documents


@dataclass(frozen=True)
class Part:
    """Documents that follow each other; they may go on into other sources."""

    start: Position
    end: Position
    documents: int

    def files(self, sources: Sequence[Source]) -> tuple[Source, ...]:
        """Those of all sources that hold the part."""
        return tuple(sources[self.start.source : self.end.source + 1])


def find_parts(files: Sequence[Source], key: str, shard_bytes: int) -> list[Part]:
    """Divide the sources into parts with `shard_bytes` bytes of text.

    Reads them to their end, which finds a damaged line before hours of encoding.
    """
    parts: list[Part] = []
    start = end = Position()
    documents = size = 0
    for source, path in enumerate(files):
        with open_bytes(path) as file:
            found = parse_documents(decode_lines(file, display_name(path)), path, key=key)
            for number, document in enumerate(found, start=1):
                documents += 1
                size += text_bytes(document)
                if size >= shard_bytes:
                    end = Position(source, number, document.last_line, file.seek(0, os.SEEK_CUR))
                    parts.append(Part(start, end, documents))
                    start, documents, size = end, 0, 0
            if documents:
                end = Position(source, number, document.last_line, file.seek(0, os.SEEK_CUR))
    if documents:
        parts.append(Part(start, end, documents))
    return parts


class PartReader:
    """Reads parts. A file stays open for the next part, so that a compressed one is decompressed only once."""

    def __init__(self) -> None:
        self._path: Source | None = None
        self._file: IO[bytes] | None = None
        self._open = ExitStack()

    def read(self, files: Sequence[Source], part: Part, key: str) -> Iterator[Document]:
        """Yield the documents of a part; `files` are those that hold it."""
        starts = chain([part.start], repeat(Position()))
        documents = chain.from_iterable(map(self._documents, files, starts, repeat(key)))
        return islice(documents, part.documents)

    def close(self) -> None:
        self._open.close()
        self._path = self._file = None

    def _documents(self, path: Source, start: Position, key: str) -> Iterator[Document]:
        if self._file is None or self._path != path or self._file.seek(0, os.SEEK_CUR) > start.bytes:
            self.close()
            self._path, self._file = path, self._open.enter_context(open_bytes(path))
        try:
            self._file.seek(start.bytes)
        except DAMAGE as error:
            raise InputError(damaged(path, error)) from None
        lines = decode_lines(self._file, display_name(path), number=start.lines)
        return parse_documents(lines, path, key=key, number=start.lines)


class CorpusEncoder:
    """Splits documents into sentences and encodes the sentences of many documents, without special tokens.

    `spaces` is True if the tokenizer preserves whitespace, as byte-level tokenizers do. Then a sentence includes the
    space or line break before it, and the ids of a document are those of its complete text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown, self.vocabulary = tokenizer.unk_token_id, tokenizer.size
        self.spaces = tokenizer.decode(tokenizer.encode(PROBE, add_special_tokens=False).ids) == PROBE
        # In this copy, text that looks like a special token ("[MASK]") is encoded as text.
        self._pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        self._pipeline.encode_special_tokens = True
        self._cache = WordCache.of(self._pipeline, add_special_tokens=False)

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

    def encode(self, sentences: Sequence[str]) -> tuple[Ids, Sizes]:
        """Return the ids of all sentences, one after the other, and the number of ids of each sentence."""
        if self._cache is not None:
            ids, sizes, _ = self._cache.encode(sentences)
            return ids, sizes
        rows = [item.ids for item in self._pipeline.encode_batch_fast(list(sentences), add_special_tokens=False)]
        return flatten(rows)


def text_bytes(document: Document) -> int:
    """Return the number of UTF-8 bytes in the paragraphs of a document."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in document.paragraphs)


def write_part(
    documents: Iterator[Document], end: Position, folder: Path, encoder: CorpusEncoder
) -> Generator[tuple[int, int], None, ShardRecord | None]:
    """Encode the documents of a part that ends at `end` and write its shard into an empty folder.

    Yields how many documents and tokens are encoded. Returns None if the part has no tokens.
    """
    writer = ShardWriter(folder, dtype=token_type(encoder.vocabulary), unknown=encoder.unknown)
    try:
        sentences: list[str] = []
        counts: list[int] = []  # sentences of each document in this batch
        done = paragraphs = size = pending = 0
        for document in chain(documents, [None]):
            if document is not None:
                found = encoder.sentences(document)
                sentences += found
                counts.append(len(found))
                done += 1
                paragraphs += len(document.paragraphs)
                document_bytes = text_bytes(document)
                size, pending = size + document_bytes, pending + document_bytes
            if document is None or pending >= BATCH:
                writer.add(*encoder.encode(sentences), counts)
                sentences, counts, pending = [], [], 0
                yield done, writer.tokens
        return writer.finish(paragraphs=paragraphs, size=size, next=end.key) if writer.tokens else None
    finally:
        writer.close()
