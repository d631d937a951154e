"""Analyses of embeddings: a map of sentences, and the senses of a word.

A map has the vectors of sentences on a plane (principal component analysis, t-SNE or UMAP), and the nearest neighbors
of each in the full space. Word senses compare the vectors of one word in several texts, in every layer of a model: a
static vector is the same in every text; a model computes a new one for each, so that the noun and the verb "train"
separate from layer to layer.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import TextExample
from regard.data.files import display_name, open_text
from regard.errors import InputError
from regard.events import Progress
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.interpret.projection import PROJECTION_NAMES, Projection, project, project_onto_plane
from regard.known import DEFAULT_MODEL
from regard.render.result import Result, Table
from regard.wording import excerpt, is_count, truncation_note

Doubles = NDArray[np.float64]

BLOCK_SIZE = 512  # vectors compared at a time: memory grows with the number of vectors, not with its square
CHUNK_SIZE = 512  # texts between two progress events
MAX_SENTENCES = 2000  # that a page can show
PRINTED = 10  # sentences in the terminal
MAX_TEXTS = 60  # of a word; their similarity matrix has 60 x 60 cells
COLUMN_WIDTH = 10
STATIC_FORMAT = "expected a word and its numbers with spaces between them, as word2vec and GloVe write them"


def sample_indices(count: int, limit: int, seed: int = 0) -> list[int]:
    """At most `limit` of the indices below `count`, sorted; the same seed gives the same ones."""
    return list(range(count)) if count <= limit else sorted(random.Random(seed).sample(range(count), limit))


def sampling_note(total: int, used: int, seed: int) -> list[str]:
    """A note for the reader when some texts were left out."""
    if used >= total:
        return []
    return [f"{used:,} of {total:,} texts were sampled at random (seed {seed}); {total - used:,} are left out"]


def nearest_neighbors(vectors: NDArray[np.floating], count: int) -> tuple[NDArray[np.int64], Doubles]:
    """The indices of the `count` nearest other vectors of each vector, or of all if there are fewer, and their cosines.

    The nearest is first. Ties are broken by index. A zero vector has the cosine 0 with all others.
    """
    unit = normalize(vectors)
    number = len(unit)
    count = max(0, min(count, number - 1))
    indices = np.empty((number, count), dtype=np.int64)
    cosines = np.empty((number, count))
    for start in range(0, number, BLOCK_SIZE):
        block = np.clip(unit[start : start + BLOCK_SIZE] @ unit.T, -1.0, 1.0)
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf  # a vector is not its own neighbor
        order = np.argsort(-block, axis=1, kind="stable")[:, :count]
        indices[start : start + BLOCK_SIZE] = order
        cosines[start : start + BLOCK_SIZE] = np.take_along_axis(block, order, axis=1)
    return indices, cosines


def cosine_similarity(vectors: NDArray[np.floating]) -> Doubles:
    """The cosines of all pairs, (n, width) -> (n, n); 0 for a zero vector."""
    unit = normalize(vectors)
    return np.clip(unit @ unit.T, -1.0, 1.0)


def normalize(vectors: NDArray[np.floating]) -> Doubles:
    """The vectors with length 1; zero vectors stay zero."""
    exact = vectors.astype(np.float64)
    unit: Doubles = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-300)
    return unit


class Neighbor(BaseModel):
    """`index` counts the sentences of the map from 0."""

    index: int
    cosine: float


class Sentence(BaseModel):
    text: str
    label: str | None
    point: list[float]
    neighbors: list[Neighbor]


class SentenceMap(Result):
    """`label` is None for all sentences if no text has one. `total` texts were given, `cut` were longer than the model
    reads. `explained` is the share of variance of each axis, empty unless `projection` is "pca". `notes` report texts
    that were left out or truncated."""

    page_view: ClassVar[str | None] = "map"

    model: str
    layer: int | str
    pooling: str
    width: int
    total: int
    seed: int
    cut: int
    projection: Projection
    explained: list[float]
    sentences: list[Sentence]
    notes: list[str]

    def to_text(self) -> str:
        lines = [f"{len(self.sentences):,} sentences, vectors of width {self.width:,}, projected onto a plane"]
        if self.explained:
            first, second = self.explained
            variances = f"{first:.1%} horizontally, {second:.1%} vertically"
            lines.append(f"The plane keeps {first + second:.1%} of the variance: {variances}")
        else:
            lines.append(f"The plane is that of {PROJECTION_NAMES[self.projection]}: only close points mean something")
        for sentence in self.sentences[:PRINTED]:
            x, y = sentence.point
            label = f"  [{sentence.label}]" if sentence.label else ""
            lines.append(f"\n({x:.3f}, {y:.3f})  {excerpt(sentence.text, 90)}{label}")
            for near in sentence.neighbors:
                lines.append(f"    {near.cosine:6.3f}  {excerpt(self.sentences[near.index].text, 90)}")
        if len(self.sentences) > PRINTED:
            lines.append(f"\nand {len(self.sentences) - PRINTED:,} more; --json and --output have all of them")
        return "\n".join(lines)

    def to_table(self) -> Table:
        count = max((len(sentence.neighbors) for sentence in self.sentences), default=0)
        near = [name for rank in range(1, count + 1) for name in (f"neighbor_{rank}", f"cosine_{rank}")]
        rows: list[list[object]] = [
            [one.text, one.label, *one.point, *(value for n in one.neighbors for value in (n.index, n.cosine))]
            for one in self.sentences
        ]
        return ["text", "label", "x", "y", *near], rows


def sentence_map(
    loaded: LoadedModel,
    examples: Sequence[TextExample],
    *,
    layer: int | str = -1,
    pooling: str = "mean",
    neighbors: int = 5,
    limit: int = MAX_SENTENCES,
    seed: int = 0,
    projection: Projection = "pca",
) -> Generator[Progress, None, SentenceMap]:
    """Embed the texts, project them onto a plane and find the nearest neighbors of each.

    Above `limit`, texts are sampled at random.
    """
    given = [example for example in examples if example.text.strip()]
    if len(given) < 2:
        raise InputError(f"expected two sentences or more, got {len(given)}")
    used = [given[index] for index in sample_indices(len(given), limit, seed)]
    texts, labels = [example.text for example in used], [_label(example) for example in used]
    engine = load_engine(LoadedModel("", *loaded), layers=layer, pooling=pooling)
    engine.check_texts(texts)
    engine.truncated = 0
    chunks = []
    for start in range(0, len(texts), CHUNK_SIZE):
        chunks.append(engine.embed(texts[start : start + CHUNK_SIZE]))
        done = min(start + CHUNK_SIZE, len(texts))
        yield Progress(stage="embedding", done=done, total=len(texts), unit="sentences")
    vectors = np.concatenate(chunks)
    points, explained = project_onto_plane(vectors, projection, seed)
    nearest, cosines = nearest_neighbors(vectors, neighbors)
    columns = zip(
        texts,
        labels if any(labels) else [None] * len(texts),
        np.round(points, 6).tolist(),
        nearest.tolist(),
        np.round(cosines, 6).tolist(),
        strict=True,
    )
    return SentenceMap(
        model=loaded.name,
        layer=layer,
        pooling=pooling,
        width=engine.width,
        total=len(given),
        seed=seed,
        cut=engine.truncated,
        projection=projection,
        explained=np.round(explained, 6).tolist(),
        sentences=[
            Sentence(
                text=text,
                label=label,
                point=point,
                neighbors=[Neighbor(index=i, cosine=c) for i, c in zip(*near, strict=True)],
            )
            for text, label, point, *near in columns
        ],
        notes=sampling_note(len(given), len(used), seed)
        + ([truncation_note(engine.truncated)] if engine.truncated else []),
    )


def _label(example: TextExample) -> str:
    match example.label:
        case None:
            return ""
        case tuple():
            return ", ".join(example.label) or "none"
        case _:
            return str(example.label)


class Plane(BaseModel):
    """The word's vectors in one layer on their first two principal components."""

    points: list[list[float]]
    explained: list[float]


class WordContexts(BaseModel):
    """`pieces` are the tokens of the word in each text; `planes` has one entry per layer."""

    pieces: list[list[str]]
    planes: list[Plane]


class SensesView(WordContexts):
    """The page's data of one model: its planes and similarities by layer."""

    model: str
    word: str
    texts: list[str]
    spans: list[tuple[int, int]]
    similarity: list[list[list[float]]]
    notes: list[str]


class SensesResult(Result):
    """`similarity[model][layer][i][j]` is the cosine of the word's vectors in texts i and j; layer 0 is the output of
    the embeddings. Static vectors are listed under their file name and have one layer. `spans` are the characters of
    the word in each text; `total` texts were given.
    """

    page_view: ClassVar[str | None] = "senses"
    view_type: ClassVar[str | None] = "regard.interpret.embeddings:SensesView"

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
                label = "layer 0 (embeddings)" if layer == 0 else f"layer {layer}"
                label = label if name in self.contexts else "static"
                lines.append(f"{label:22}" + "".join(f"{matrix[a][b]:{COLUMN_WIDTH}.3f}" for a, b in pairs))
        return "\n".join(lines)

    def to_table(self) -> Table:
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
        ((name, contexts),) = self.contexts.items()
        return SensesView(
            model=name,
            word=self.word,
            texts=self.texts,
            spans=self.spans,
            similarity=self.similarity[name],
            notes=self.notes,
            **dict(contexts),
        ).model_dump(mode="json")


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
        similarity[os.fspath(static)] = [cosine_similarity(_static_vectors(static, forms)).tolist()]
    for name in models:
        with use(name) as loaded:
            engine = load_engine(LoadedModel("", *loaded), layers="concat(:)", pooling="none")
            vectors, pieces = word_vectors(engine, used, spans, model=name)
        similarity[name] = [cosine_similarity(layer).tolist() for layer in vectors]
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


def _planes(vectors: NDArray[np.float32]) -> list[Plane]:
    """A projection per layer, each with the signs that keep the plot similar to the previous layer."""
    planes, previous = [], None
    for layer in vectors:
        points, explained = project(layer)
        if previous is not None:
            points = points * np.where((points * previous).sum(0) < 0, -1.0, 1.0)
        previous = points
        planes.append(Plane(points=np.round(points, 6).tolist(), explained=np.round(explained, 6).tolist()))
    return planes


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


def read_static_vectors(path: str | os.PathLike[str], words: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of the words that a text file of word2vec or GloVe has: a word and its numbers per line.

    word2vec's first line of counts is optional. The first vector of a word counts; all have the same width.
    """
    missing, vectors = set(words), dict[str, NDArray[np.float32]]()
    width: int | None = None
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{display_name(path)} line {number}"
            fields = line.split()
            if number == 1:
                if len(fields) == 2 and all(map(is_count, fields)):
                    width = int(fields[1])
                    continue
                width = len(fields) - 1
                if width < 1 or not all(map(_is_number, fields[1:])):
                    raise InputError(f"{where}: {STATIC_FORMAT}; found {line[:40]!r}")
            word = line.split(" ", 1)[0]
            if word in missing:
                wrong = next((field for field in fields[1:] if not _is_number(field)), None)
                if wrong is not None:
                    raise InputError(f"{where}: {wrong[:20]!r} is not a number; {STATIC_FORMAT}")
                if len(fields) - 1 != width:
                    found = f"{len(fields) - 1} numbers after the word, but the first line has {width}"
                    raise InputError(f"{where}: {found}; fix this line")
                vectors[word] = np.array(fields[1:], dtype=np.float32)
                missing.remove(word)
                if not missing:
                    break
    if width is None:
        raise InputError(f"{display_name(path)} is empty; {STATIC_FORMAT}")
    return vectors


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
