"""One word in several texts: how like are its vectors, in every layer of some models, and in static vectors?

A static vector is the same wherever the word stands; a model's are made anew in each text, so that a train that one
takes and the mornings in which one likes to train part ways from layer to layer. Knows texts, models and cosines.
Prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.inference.embedding.embedder import load_engine
from regard.inference.embedding.engine import EmbeddingEngine
from regard.interpret.probes.static import read_static
from regard.known import DEFAULT_MODEL

__all__ = ["Senses", "compare_senses", "cosines", "place_of", "units", "word_vectors"]

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Senses:
    """`similarity[model][layer][i][j]`: the cosine of the word's vectors in texts i and j; layer 0 is the embeddings'
    output. Static vectors are under their file's name and have one layer."""

    word: str
    texts: list[str]
    similarity: dict[str, list[list[list[float]]]]


def compare_senses(
    word: str,
    texts: Sequence[str],
    *,
    models: Iterable[str] = (DEFAULT_MODEL,),
    static: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> Senses:
    """Look at the first place of the word in each text, two texts or more. Its pieces' vectors are averaged."""
    if len(texts) < 2:
        raise InputError(f"expected two texts or more that have the word {word!r}, got {len(texts)}; give another")
    places = [place_of(word, text, number) for number, text in enumerate(texts, start=1)]
    similarity: dict[str, list[list[list[float]]]] = {}
    if static is not None:
        forms = [text[start:end] for text, (start, end) in zip(texts, places, strict=True)]
        similarity[os.fspath(static)] = [cosines(_of_file(static, forms)).tolist()]
    for model in models:
        ready = load_engine(model, layers="concat(:)", pooling="none", device=device)
        vectors, _ = word_vectors(ready, texts, places, reader=model)
        similarity[model] = [cosines(layer).tolist() for layer in vectors]
    return Senses(word, list(texts), similarity)


def place_of(word: str, text: str, number: int) -> tuple[int, int]:
    """The characters [start, end) of the first place where the text has the word, whole, in capitals or not."""
    if not word.strip():
        raise InputError(f"expected a word, got {word!r}")
    found = re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE)
    if found is None:
        raise InputError(
            f"text {number}, {text[:60]!r}, does not have the word {word!r}; give a text that has it as it is written"
        )
    return found.span()


def word_vectors(
    ready: EmbeddingEngine, texts: Sequence[str], places: Sequence[tuple[int, int]], *, reader: str = "the model"
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """The word's vectors, (layers, texts, width), the mean of its pieces', and those pieces in each text.

    `ready` gives every layer of every token; `reader` is what an error calls the model.
    """
    layers = len(ready.layers.chosen)
    found, pieces = [], []
    for number, (tokens, (start, end)) in enumerate(zip(ready.embed_tokens(texts), places, strict=True), start=1):
        begins, ends = tokens.offsets.T
        inside = np.flatnonzero((begins < end) & (ends > start))
        if not len(inside):
            limit = f"the {ready.max_length} tokens that {reader} reads" if ready.max_length else f"what {reader} reads"
            raise InputError(f"text {number}: the word stands behind {limit}; shorten the text before it")
        found.append(tokens.vectors[inside].mean(0).reshape(layers, -1))
        pieces.append([tokens.tokens[place] for place in inside])
    return np.stack(found, axis=1), pieces


def _of_file(path: str | os.PathLike[str], forms: Sequence[str]) -> Vectors:
    """The vectors of the word as the texts write it, or else in small letters; (texts, width)."""
    known = read_static(path, {*forms, *(form.lower() for form in forms)})
    found = []
    for form in forms:
        vector = known.get(form, known.get(form.lower()))
        if vector is None:
            raise InputError(f"{os.fspath(path)} has no vector for {form!r}; use other vectors, or another word")
        found.append(vector)
    return np.stack(found)


def cosines(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Of all pairs, (n, width) -> (n, n); 0 where a vector is all zeros."""
    equal = units(vectors)
    return np.clip(equal @ equal.T, -1.0, 1.0)


def units(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The vectors with length 1, but those of zeros."""
    exact = vectors.astype(np.float64)
    found: NDArray[np.float64] = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-300)
    return found
