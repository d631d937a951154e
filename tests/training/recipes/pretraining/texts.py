"""Texts in which every token is different, so that tests can trace its origin: token k has the id FIRST + k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from regard.training.recipes.pretraining.token_stream import TokenStream

FIRST = 10
PAD, CLS, SEP, MASK = range(4)
TOKENIZER: Any = SimpleNamespace(pad_token_id=PAD, cls_token_id=CLS, sep_token_id=SEP)

# Documents as lists of sentence lengths.
DOCUMENTS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=12)


def token_stream(documents: Sequence[Sequence[int]], *, pieces: int = 1) -> TokenStream:
    """A text of these documents in `pieces` pieces (at most one for each document)."""
    sentences, starts = [0], [0]
    for document in documents:
        for size in document:
            sentences.append(sentences[-1] + size)
        starts.append(sentences[-1])
    bounds = sorted({starts[len(documents) * piece // pieces] for piece in range(pieces + 1)})
    tokens = np.arange(sentences[-1], dtype=np.int32) + FIRST
    cut = tuple(tokens[start:stop] for start, stop in pairwise(bounds))
    return TokenStream(cut, np.array(bounds), np.array(sentences), np.array(starts))


def original_positions(text: TokenStream) -> list[int]:
    """The positions of a text's tokens in the original text."""
    return [int(token) - FIRST for piece in text.pieces for token in piece]
