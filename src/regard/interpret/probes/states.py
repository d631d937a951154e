"""The hidden states of all layers for many texts, each text read by the model once.

Kept in half precision: in memory, or in a temporary file without a name where they are large. Knows texts and places in
them; knows nothing of labels or heads.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import TaggedExample
from regard.inference.embedding.engine import EmbeddingEngine, TextError, TokenVectors

__all__ = ["LARGE", "Done", "States", "in_parts", "of_texts", "of_tokens", "of_words"]

LARGE = 2**31  # bytes; more goes to a file
CHUNK = 2**28  # bytes of vectors in full precision at a time
MOST = float(np.finfo(np.float16).max)

Done = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class States:
    """`values` (layers, items, width): an item is a word, a token or a text. `lengths`: the items of each example."""

    values: NDArray[np.float16]
    lengths: tuple[int, ...]


def of_words(engine: EmbeddingEngine, examples: Sequence[TaggedExample], *, done: Done | None = None) -> States:
    """The vectors of each word's first piece; zeros for a word of which the tokenizer leaves nothing."""
    lengths = tuple(len(example.words) for example in examples)
    states = _room(engine, lengths)
    starts = _starts(lengths)
    texts = [example.text for example in examples]
    for places in _chunks(engine, texts):
        for place, found in zip(places, engine.embed_tokens([texts[place] for place in places]), strict=True):
            piece, there = _first_pieces(found, examples[place])
            _keep(states, starts[place], found.vectors[piece] * there[:, None])
        _tell(done, len(places))
    return states


def of_tokens(engine: EmbeddingEngine, texts: Sequence[str], *, done: Done | None = None) -> States:
    """The vectors of all tokens, special ones too."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    states = _room(engine, tuple(map(len, ids)))
    starts = _starts(states.lengths)
    for places in _chunks(engine, texts):
        for place, found in zip(places, engine.embed_tokens([texts[place] for place in places]), strict=True):
            _keep(states, starts[place], found.vectors)
        _tell(done, len(places))
    return states


def of_texts(engine: EmbeddingEngine, texts: Sequence[str], *, done: Done | None = None) -> States:
    """One vector a text and layer, by the engine's pooling."""
    states = _room(engine, (1,) * len(texts))
    for places in _chunks(engine, texts):
        _keep(states, np.array(places), engine.embed([texts[place] for place in places]))
        _tell(done, len(places))
    return states


def in_parts(engine: EmbeddingEngine, examples: Sequence[TaggedExample]) -> list[TaggedExample]:
    """The sentences, those that are too long for the model cut between words until every part fits."""
    _, gone = engine.tokenizer.ids_batch([example.text for example in examples], max_length=engine.max_length)
    parts: list[TaggedExample] = []
    for example, cut in zip(examples, gone, strict=True):
        parts.extend(in_parts(engine, _halves(example)) if cut and len(example.words) > 1 else [example])
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
    """Places of texts of nearly equal length, as the engine likes them, few enough for memory."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    for place, one in enumerate(ids):
        if not one:
            raise TextError(place, f"({texts[place][:40]!r}) has no tokens for this model; leave it out")
    room = max(1, CHUNK // (4 * engine.width))
    group: list[int] = []
    held = 0
    for place in sorted(range(len(ids)), key=lambda i: -len(ids[i])):
        if group and held + len(ids[place]) > room:
            yield group
            group, held = [], 0
        group.append(place)
        held += len(ids[place])
    if group:
        yield group


def _room(engine: EmbeddingEngine, lengths: tuple[int, ...]) -> States:
    layers = len(engine.layers.chosen)
    shape = (layers, sum(lengths), engine.width // layers)
    size = 2 * int(np.prod(shape))
    if size < LARGE:
        return States(np.empty(shape, dtype=np.float16), lengths)
    with tempfile.TemporaryFile() as file:  # the mapping holds it until the array goes
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):  # or a full disk would end the process later, by a signal
            os.posix_fallocate(file.fileno(), 0, size)
        return States(np.memmap(file, dtype=np.float16, mode="r+", shape=shape), lengths)


def _keep(states: States, place: int | NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
    """Put (n, layers * width) where it belongs: at some places, or from one place on."""
    layers, _, width = states.values.shape
    where = place if isinstance(place, np.ndarray) else slice(place, place + len(vectors))
    # What half precision cannot hold (some T5 have such activations) would become infinite.
    small = np.clip(vectors, -MOST, MOST).astype(np.float16)
    states.values[:, where] = small.reshape(len(vectors), layers, width).swapaxes(0, 1)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def _first_pieces(found: TokenVectors, example: TaggedExample) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token each word begins with, and whether there is one: the first that ends behind the word's beginning."""
    words = np.array(example.words, dtype=np.int64).reshape(-1, 2)
    begins, ends = found.offsets.T
    empty = begins >= ends  # special tokens: no characters
    reach = np.maximum.accumulate(np.where(empty, -1, ends))
    piece = np.minimum(np.searchsorted(reach, words[:, 0], side="right"), len(reach) - 1)
    there: NDArray[np.bool_] = ~empty[piece] & (begins[piece] < words[:, 1]) & (ends[piece] > words[:, 0])
    return piece, there


def _tell(done: Done | None, count: int) -> None:
    if done is not None:
        done(count)
