"""Word senses: the vectors of one word in several texts, compared in every layer of a model.

A static vector is the same in every text; a model computes a new one for each, so that the noun and the verb "train"
separate from layer to layer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.errors import InputError
from regard.inference.embedding.embedder import load_engine
from regard.inference.embedding.engine import EmbeddingEngine
from regard.interpret.embeddings.neighbors import cosine_similarity
from regard.interpret.embeddings.projection import Projection, project
from regard.interpret.embeddings.sampling import sample_indices, sampling_note
from regard.interpret.embeddings.static_vectors import read_static_vectors
from regard.known import DEFAULT_MODEL
from regard.render.result import Result

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel

MAX_TEXTS = 60  # their similarity matrix has 60 x 60 cells
COLUMN_WIDTH = 10


class Plane(BaseModel):
    """The word's vectors in one layer on their first two principal components."""

    points: list[list[float]]
    explained: list[float]


class WordContexts(BaseModel):
    """`pieces` are the tokens of the word in each text; `planes` has one entry per layer."""

    pieces: list[list[str]]
    planes: list[Plane]


class SensesView(WordContexts):
    """One model; see `SensesResult`."""

    model: str
    word: str
    texts: list[str]
    similarity: list[list[list[float]]]
    spans: list[tuple[int, int]]
    total: int
    seed: int


class SensesResult(Result):
    """`similarity[model][layer][i][j]` is the cosine of the word's vectors in texts i and j; layer 0 is the output of
    the embeddings. Static vectors are listed under their file name and have one layer. `spans` are the characters of
    the word in each text; `total` texts were given.
    """

    page_view: ClassVar[str] = "senses"
    view_type: ClassVar[str | None] = "regard.interpret.embeddings.senses:SensesView"

    word: str
    texts: list[str]
    similarity: dict[str, list[list[list[float]]]]
    spans: list[tuple[int, int]]
    contexts: dict[str, WordContexts]
    total: int
    seed: int

    @property
    def notes(self) -> list[str]:
        return sampling_note(self.total, len(self.texts), self.seed)

    def to_text(self) -> str:
        lines = [f"Cosine similarity of the vectors of {self.word!r} in each pair of texts", ""]
        lines += [f"{number:4}  {text}" for number, text in enumerate(self.texts, start=1)]
        pairs = list(combinations(range(len(self.texts)), 2))
        for name, layers in self.similarity.items():
            header = "".join(f"{f'{a + 1} and {b + 1}':>{COLUMN_WIDTH}}" for a, b in pairs)
            lines += ["", name, " " * 22 + header]
            for layer, matrix in enumerate(layers):
                label = self._layer_label(name, layer)
                lines.append(f"{label:22}" + "".join(f"{matrix[a][b]:{COLUMN_WIDTH}.3f}" for a, b in pairs))
        return "\n".join(lines)

    def to_table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = [
            [name, layer, a + 1, b + 1, matrix[a][b]]
            for name, layers in self.similarity.items()
            for layer, matrix in enumerate(layers)
            for a, b in combinations(range(len(self.texts)), 2)
        ]
        return ["model", "layer", "text_a", "text_b", "cosine"], rows

    def view_data(self) -> dict[str, Any]:
        if len(self.similarity) != 1 or not self.contexts:
            raise InputError("a page shows the vectors of one model; leave out the other models and static vectors")
        document = self.to_dict()
        ((name, contexts),) = document.pop("contexts").items()
        similarity = document.pop("similarity")[name]
        return {**document, **contexts, "similarity": similarity, "model": name, "notes": self.notes}

    def _layer_label(self, name: str, layer: int) -> str:
        if name not in self.contexts:
            return "static"
        return "layer 0 (embeddings)" if layer == 0 else f"layer {layer}"


def compare_senses(
    word: str,
    texts: Sequence[str],
    *,
    use: Callable[[str], AbstractContextManager[LoadedModel]],
    models: Sequence[str] = (DEFAULT_MODEL,),
    static: str | os.PathLike[str] | None = None,
    limit: int = MAX_TEXTS,
    seed: int = 0,
) -> SensesResult:
    """Compare the first occurrence of the word in each text, for two texts or more.

    `use` gives the model of a name. The vectors of the word's pieces are averaged. Above `limit`, texts are sampled at
    random.
    """
    given = [text for text in texts if text.strip()]
    if len(given) < 2:
        raise InputError(f"expected two texts or more that have the word {word!r}, got {len(given)}; give another")
    used = [given[index] for index in sample_indices(len(given), limit, seed)]
    spans = [find_word(word, text, number) for number, text in enumerate(used, start=1)]
    similarity: dict[str, list[list[list[float]]]] = {}
    contexts: dict[str, WordContexts] = {}
    if static is not None:
        forms = [text[start:end] for text, (start, end) in zip(used, spans, strict=True)]
        similarity[os.fspath(static)] = [_similarity(_static_vectors(static, forms))]
    for name in models:
        with use(name) as loaded:
            device = next((parameter.device.type for parameter in loaded.model.parameters()), "cpu")
            pair = loaded.model, loaded.tokenizer
            engine = load_engine(pair, layers="concat(:)", pooling="none", device=device)
            vectors, pieces = word_vectors(engine, used, spans, model=name)
        similarity[name] = [_similarity(layer) for layer in vectors]
        contexts[name] = WordContexts(pieces=pieces, planes=_planes(vectors))
    return SensesResult(
        word=word.strip(),
        texts=used,
        similarity=similarity,
        spans=spans,
        contexts=contexts,
        total=len(given),
        seed=seed,
    )


def find_word(word: str, text: str, number: int) -> tuple[int, int]:
    """The characters [start, end) of the first occurrence of the whole word, ignoring case."""
    if not word.strip():
        raise InputError(f"expected a word, got {word!r}")
    match = re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE)
    if match is None:
        raise InputError(
            f"text {number}, {text[:60]!r}, does not have the word {word!r}; give a text that has it as it is written"
        )
    return match.span()


def word_vectors(
    engine: EmbeddingEngine, texts: Sequence[str], spans: Sequence[tuple[int, int]], *, model: str = "the model"
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """The word's vectors (layers, texts, width), averaged over its pieces, and the pieces in each text.

    The engine returns every layer of every token; `model` is the name in error messages.
    """
    layers = len(engine.layers.chosen)
    vectors, pieces = [], []
    for number, (tokens, (start, end)) in enumerate(zip(engine.embed_tokens(texts), spans, strict=True), start=1):
        begins, ends = tokens.offsets.T
        inside = np.flatnonzero((begins < end) & (ends > start))
        if not len(inside):
            reads = f"the {engine.max_length} tokens that {model} reads" if engine.max_length else f"what {model} reads"
            raise InputError(f"text {number}: the word comes after {reads}; shorten the text before it")
        vectors.append(tokens.vectors[inside].mean(0).reshape(layers, -1))
        pieces.append([tokens.tokens[index] for index in inside])
    return np.stack(vectors, axis=1), pieces


def _similarity(vectors: NDArray[np.floating]) -> list[list[float]]:
    matrix: list[list[float]] = cosine_similarity(vectors).tolist()
    return matrix


def _planes(vectors: NDArray[np.float32]) -> list[Plane]:
    """A projection per layer, each with the signs that keep the plot similar to the previous layer."""
    planes: list[Projection] = []
    for layer in vectors:
        plane = project(layer)
        planes.append(plane.aligned_to(planes[-1]) if planes else plane)
    return [
        Plane(points=np.round(plane.points, 6).tolist(), explained=np.round(plane.explained, 6).tolist())
        for plane in planes
    ]


def _static_vectors(path: str | os.PathLike[str], forms: Sequence[str]) -> NDArray[np.float32]:
    """The vectors (texts, width) of the word as written in the texts, or else in lower case."""
    known = read_static_vectors(path, {*forms, *(form.lower() for form in forms)})
    vectors = []
    for form in forms:
        vector = known.get(form, known.get(form.lower()))
        if vector is None:
            raise InputError(f"{os.fspath(path)} has no vector for {form!r}; use other vectors, or another word")
        vectors.append(vector)
    return np.stack(vectors)
