"""The parts of a text: the documents of one shard, and how a shard is written from them.

Where a part ends depends on the text alone, so a corpus has the same parts whoever encodes them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.data.corpus.documents import Document, Source, read_file_documents
from regard.data.corpus.encoder import CorpusEncoder, text_bytes
from regard.data.corpus.folder import ShardRecord, ShardWriter, token_type

BATCH = 1 << 20  # bytes of text to encode at once
Position = tuple[int, int]  # index of a source, and the number of its documents that are done
PositionedDocument = tuple[Document, Position]  # with the position after it


def positioned_documents(files: tuple[Source, ...], start: Position, key: str) -> Iterator[PositionedDocument]:
    """Yield the documents after `start`, each with the position after it."""
    for source in range(start[0], len(files)):
        skip = start[1] if source == start[0] else 0
        for number, document in islice(enumerate(read_file_documents(files[source], key=key), start=1), skip, None):
            yield document, (source, number)


def next_part(stream: Iterator[PositionedDocument], shard_bytes: int) -> Iterator[PositionedDocument]:
    """Take documents from a stream until they have `shard_bytes` bytes of text."""
    size = 0
    for document, position in stream:
        yield document, position
        size += text_bytes(document)
        if size >= shard_bytes:
            return


def count_documents(path: Source, key: str) -> int:
    """Count the documents of a file. Reading it to its end finds a damaged line before hours of encoding."""
    return sum(1 for _ in read_file_documents(path, key=key))


@dataclass(frozen=True)
class PartProgress:
    """How much of a part is encoded."""

    documents: int
    tokens: int


def write_part(
    part: Iterator[PositionedDocument], folder: Path, encoder: CorpusEncoder
) -> Generator[PartProgress, None, ShardRecord | None]:
    """Encode a part and write its shard into an empty folder; return None if it has no tokens."""
    writer = ShardWriter(folder, dtype=token_type(encoder.vocabulary), unknown=encoder.unknown)
    try:
        batch: list[list[str]] = []
        paragraphs = size = pending = documents = 0
        position = (0, 0)
        for document, position in part:  # noqa: B007 (used after the loop)
            batch.append(encoder.sentences(document))
            documents += 1
            paragraphs += len(document.paragraphs)
            document_bytes = text_bytes(document)
            size, pending = size + document_bytes, pending + document_bytes
            if pending >= BATCH:
                writer.add(encoder.encode(batch))
                batch, pending = [], 0
                yield PartProgress(documents, writer.tokens)
        writer.add(encoder.encode(batch))
        yield PartProgress(documents, writer.tokens)
        return writer.finish(paragraphs=paragraphs, size=size, next=position) if writer.tokens else None
    finally:
        writer.close()
