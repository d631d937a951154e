"""Rows to blocks: how many texts are in memory at once, and what the engine makes of them.

Knows texts and the engine; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from regard.errors import InputError
from regard.inference.embedding.blocks import Block, pack_tokens
from regard.inference.embedding.engine import EmbeddingEngine, TextError
from regard.inference.embedding.texts import NumberedText, is_blank

__all__ = ["blocks", "check"]

# What is in memory at once: characters of text, or floats of token vectors if every character were a token.
CHARACTERS = 1 << 22
FLOATS = 1 << 26


def check(ready: EmbeddingEngine, rows: Iterator[NumberedText], name: str) -> None:
    """Refuse by its line the first text that the engine would refuse."""
    for group in _groups(rows, CHARACTERS):
        with _named(name, group):
            ready.check_texts([text for _, text in group if not is_blank(text)])


def blocks(
    ready: EmbeddingEngine, rows: Iterator[NumberedText], name: str, count: Callable[[int], None]
) -> Iterator[Block]:
    """Embed rows; `count` hears how many are done so far."""
    done = 0

    def also(more: int) -> None:
        count(done + more)

    for group in _groups(rows, FLOATS // ready.width if ready.pooling == "none" else CHARACTERS):
        before = ready.truncated
        with _named(name, group):
            block = _tokens(ready, group) if ready.pooling == "none" else _pooled(ready, group, also)
        yield {**block, "lines": np.array([line for line, _ in group]), "long": np.array([ready.truncated - before])}
        done += len(group)
        count(done)


def _pooled(ready: EmbeddingEngine, group: list[NumberedText], count: Callable[[int], None]) -> Block:
    vectors = np.zeros((len(group), ready.width), dtype=np.float32)
    places = [place for place, (_, text) in enumerate(group) if not is_blank(text)]
    vectors[places] = ready.embed([group[place][1] for place in places], on_progress=count)
    return {"vectors": vectors}


def _tokens(ready: EmbeddingEngine, group: list[NumberedText]) -> Block:
    """Blank texts have no tokens."""
    found = ready.embed_tokens([text for _, text in group if not is_blank(text)])
    lengths = iter([len(one.tokens) for one in found])
    return {
        "lengths": np.array([0 if is_blank(text) else next(lengths) for _, text in group]),
        "vectors": np.concatenate([np.zeros((0, ready.width), dtype=np.float32), *(one.vectors for one in found)]),
        "offsets": np.concatenate([np.zeros((0, 2), dtype=np.int32), *(one.offsets for one in found)]).astype(np.int32),
        "words": np.concatenate([np.zeros(0, dtype=np.int32), *(one.words for one in found)]).astype(np.int32),
        "tokens": pack_tokens([token for one in found for token in one.tokens]),
    }


def _groups(rows: Iterator[NumberedText], budget: int) -> Iterator[list[NumberedText]]:
    """Rows in lists of at most `budget` characters, or of one row."""
    group: list[NumberedText] = []
    room = budget
    for line, text in rows:
        if group and len(text) > room:
            yield group
            group, room = [], budget
        group.append((line, text))
        room -= len(text)
    if group:
        yield group


@contextmanager
def _named(name: str, group: list[NumberedText]) -> Iterator[None]:
    """Name the line of a text that is refused."""
    try:
        yield
    except TextError as error:
        line = [line for line, text in group if not is_blank(text)][error.place]
        raise InputError(f"{name} line {line} {error.reason}") from None
