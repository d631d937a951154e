"""A map of sentences: their vectors on a plane, and the nearest neighbors of each in the full space."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.events import Progress
from regard.inference.embedding.embedder import load_engine
from regard.interpret.embeddings.neighbors import nearest_neighbors
from regard.interpret.embeddings.projection import project
from regard.interpret.embeddings.sampling import sample_indices, sampling_note
from regard.render.result import Result
from regard.wording import truncation_note

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel

MAX_SENTENCES = 2000  # that a page can show
CHUNK_SIZE = 512  # texts between two progress events
PRINTED = 10  # sentences in the terminal


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
    reads. `explained` is the share of variance of each axis."""

    page_view: ClassVar[str] = "map"

    model: str
    layer: int | str
    pooling: str
    width: int
    total: int
    seed: int
    cut: int
    explained: list[float]
    sentences: list[Sentence]

    @property
    def notes(self) -> list[str]:
        return [
            *sampling_note(self.total, len(self.sentences), self.seed),
            *([truncation_note(self.cut)] if self.cut else []),
        ]

    def to_text(self) -> str:
        first, second = self.explained
        lines = [
            f"{len(self.sentences):,} sentences, vectors of width {self.width:,}, projected onto a plane",
            f"The plane keeps {first + second:.1%} of the variance: {first:.1%} horizontally, {second:.1%} vertically",
        ]
        for sentence in self.sentences[:PRINTED]:
            x, y = sentence.point
            label = f"  [{sentence.label}]" if sentence.label else ""
            lines.append(f"\n({x:.3f}, {y:.3f})  {_shorten(sentence.text)}{label}")
            for near in sentence.neighbors:
                lines.append(f"    {near.cosine:6.3f}  {_shorten(self.sentences[near.index].text)}")
        if len(self.sentences) > PRINTED:
            lines.append(f"\nand {len(self.sentences) - PRINTED:,} more; --json and --output have all of them")
        return "\n".join(lines)

    def to_table(self) -> tuple[list[str], list[list[object]]]:
        count = max((len(sentence.neighbors) for sentence in self.sentences), default=0)
        near = [name for rank in range(1, count + 1) for name in (f"neighbor_{rank}", f"cosine_{rank}")]
        rows: list[list[object]] = [
            [one.text, one.label, *one.point, *(value for n in one.neighbors for value in (n.index, n.cosine))]
            for one in self.sentences
        ]
        return ["text", "label", "x", "y", *near], rows

    def view_data(self) -> dict[str, Any]:
        return {**self.to_dict(), "notes": self.notes}


def sentence_map(
    loaded: LoadedModel,
    examples: Sequence[TextExample],
    *,
    layer: int | str = -1,
    pooling: str = "mean",
    neighbors: int = 5,
    limit: int = MAX_SENTENCES,
    seed: int = 0,
) -> Generator[Progress, None, SentenceMap]:
    """Embed the texts, project them onto a plane and find the nearest neighbors of each.

    Above `limit`, texts are sampled at random.
    """
    if pooling == "none":
        raise InputError('pooling "none" gives one vector per token; a map needs one per sentence: mean, cls or max')
    if neighbors < 1:
        raise InputError(f"neighbors is {neighbors}; expected 1 or more")
    given = [example for example in examples if example.text.strip()]
    if len(given) < 2:
        raise InputError(f"expected two sentences or more, got {len(given)}")
    used = [given[index] for index in sample_indices(len(given), limit, seed)]
    texts, labels = [example.text for example in used], [_label(example) for example in used]
    device = next((parameter.device.type for parameter in loaded.model.parameters()), "cpu")
    engine = load_engine((loaded.model, loaded.tokenizer), layers=layer, pooling=pooling, device=device)
    engine.check_texts(texts)
    engine.truncated = 0
    chunks = []
    for start in range(0, len(texts), CHUNK_SIZE):
        chunks.append(engine.embed(texts[start : start + CHUNK_SIZE]))
        done = min(start + CHUNK_SIZE, len(texts))
        yield Progress(stage="embedding", done=done, total=len(texts), unit="sentences")
    vectors = np.concatenate(chunks)
    plane, nearest = project(vectors), nearest_neighbors(vectors, neighbors)
    columns = zip(
        texts,
        labels if any(labels) else [None] * len(texts),
        np.round(plane.points, 6).tolist(),
        nearest.indices.tolist(),
        np.round(nearest.cosines, 6).tolist(),
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
        explained=np.round(plane.explained, 6).tolist(),
        sentences=[
            Sentence(
                text=text,
                label=label,
                point=point,
                neighbors=[Neighbor(index=i, cosine=c) for i, c in zip(indices, cosines, strict=True)],
            )
            for text, label, point, indices, cosines in columns
        ],
    )


def _label(example: TextExample) -> str:
    match example.label:
        case None:
            return ""
        case tuple():
            return ", ".join(example.label) or "none"
        case _:
            return str(example.label)


def _shorten(text: str, size: int = 90) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 3] + "..."
