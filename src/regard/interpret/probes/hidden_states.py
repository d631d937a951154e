"""The hidden states of all layers for many texts; the model reads each text once.

They are kept in half precision: in memory, or in an unnamed temporary file if they are large. The functions yield the
number of texts that they have finished since the last time, and return the states.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import TaggedExample
from regard.inference.embedding.engine import EmbeddingEngine, TextError, TokenVectors

MAX_BYTES_IN_MEMORY = 2**31
CHUNK_BYTES = 2**28  # of vectors in full precision at a time
MAX_VALUE = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """`values` (layers, items, width): an item is a word, a token or a text. `lengths` are the items per example."""

    values: NDArray[np.float16]
    lengths: tuple[int, ...]


def word_states(engine: EmbeddingEngine, examples: Sequence[TaggedExample]) -> Generator[int, None, HiddenStates]:
    """The vectors of the first piece of each word; zeros for a word without tokens."""
    states = _allocate(engine, tuple(len(example.words) for example in examples))
    starts = _starts(states.lengths)
    texts = [example.text for example in examples]
    for indices in _chunks(engine, texts):
        for index, tokens in zip(indices, engine.embed_tokens([texts[index] for index in indices]), strict=True):
            piece, exists = _first_pieces(tokens, examples[index])
            _store(states, starts[index], tokens.vectors[piece] * exists[:, None])
        yield len(indices)
    return states


def token_states(engine: EmbeddingEngine, texts: Sequence[str]) -> Generator[int, None, HiddenStates]:
    """The vectors of all tokens, with the special ones."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    states = _allocate(engine, tuple(map(len, ids)))
    starts = _starts(states.lengths)
    for indices in _chunks(engine, texts):
        for index, tokens in zip(indices, engine.embed_tokens([texts[index] for index in indices]), strict=True):
            _store(states, starts[index], tokens.vectors)
        yield len(indices)
    return states


def text_states(engine: EmbeddingEngine, texts: Sequence[str]) -> Generator[int, None, HiddenStates]:
    """One vector per text and layer, by the engine's pooling."""
    states = _allocate(engine, (1,) * len(texts))
    for indices in _chunks(engine, texts):
        _store(states, np.array(indices), engine.embed([texts[index] for index in indices]))
        yield len(indices)
    return states


def split_long_sentences(engine: EmbeddingEngine, examples: Sequence[TaggedExample]) -> list[TaggedExample]:
    """Split sentences that are too long for the model between words, until every part fits."""
    _, truncated = engine.tokenizer.ids_batch([example.text for example in examples], max_length=engine.max_length)
    parts: list[TaggedExample] = []
    for example, cut in zip(examples, truncated, strict=True):
        parts.extend(split_long_sentences(engine, _halves(example)) if cut and len(example.words) > 1 else [example])
    return parts


def _halves(example: TaggedExample) -> list[TaggedExample]:
    middle = len(example.words) // 2
    begin = example.words[middle][0]
    tags = example.tags
    return [
        TaggedExample(example.text[:begin], example.words[:middle], tags and tags[:middle]),
        TaggedExample(
            example.text[begin:],
            tuple((start - begin, end - begin) for start, end in example.words[middle:]),
            tags and tags[middle:],
        ),
    ]


def _chunks(engine: EmbeddingEngine, texts: Sequence[str]) -> Iterator[list[int]]:
    """Indices of texts of nearly equal length, few enough for memory."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    for index, one in enumerate(ids):
        if not one:
            raise TextError(index, f"({texts[index][:40]!r}) has no tokens for this model; leave it out")
    max_tokens = max(1, CHUNK_BYTES // (4 * engine.width))
    chunk: list[int] = []
    tokens = 0
    for index in sorted(range(len(ids)), key=lambda i: -len(ids[i])):
        if chunk and tokens + len(ids[index]) > max_tokens:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(index)
        tokens += len(ids[index])
    if chunk:
        yield chunk


def _allocate(engine: EmbeddingEngine, lengths: tuple[int, ...]) -> HiddenStates:
    layers = len(engine.layers.chosen)
    shape = (layers, sum(lengths), engine.width // layers)
    size = 2 * int(np.prod(shape))
    if size < MAX_BYTES_IN_MEMORY:
        return HiddenStates(np.empty(shape, dtype=np.float16), lengths)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it as long as the array
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):  # or a full disk would end the process later with a signal
            os.posix_fallocate(file.fileno(), 0, size)
        return HiddenStates(np.memmap(file, dtype=np.float16, mode="r+", shape=shape), lengths)


def _store(states: HiddenStates, at: int | NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
    """Store (n, layers * width) at some indices, or from one index on."""
    layers, _, width = states.values.shape
    where = at if isinstance(at, np.ndarray) else slice(at, at + len(vectors))
    # Values beyond half precision (some T5 have such activations) would become infinite.
    small = np.clip(vectors, -MAX_VALUE, MAX_VALUE).astype(np.float16)
    states.values[:, where] = small.reshape(len(vectors), layers, width).swapaxes(0, 1)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def _first_pieces(tokens: TokenVectors, example: TaggedExample) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token each word begins with, the first that ends after the start of the word, and whether there is one."""
    words = np.array(example.words, dtype=np.int64).reshape(-1, 2)
    starts, ends = tokens.offsets.T
    empty = starts >= ends  # special tokens: no characters
    reach = np.maximum.accumulate(np.where(empty, -1, ends))
    piece = np.minimum(np.searchsorted(reach, words[:, 0], side="right"), len(reach) - 1)
    exists: NDArray[np.bool_] = ~empty[piece] & (starts[piece] < words[:, 1]) & (ends[piece] > words[:, 0])
    return piece, exists
