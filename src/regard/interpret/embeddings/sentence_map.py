"""A map of sentences: their vectors on a plane, and the nearest neighbours of each.

Knows texts, labels, models and vectors. Knows no file and nothing of how a map is drawn. The plane keeps only a part of
what the vectors differ in, and says which part; neighbours are those in the full space.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.checkpoints.loading import load
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.inference.embedding.embedder import load_engine
from regard.interpret.embeddings.chosen import drawn, left_out, piped
from regard.interpret.embeddings.contexts import Pair, device_of
from regard.interpret.embeddings.neighbours import Neighbours, nearest_of
from regard.interpret.embeddings.projection import Projection, project
from regard.wording import truncation_note

__all__ = ["LIMIT", "NEIGHBOURS", "SentenceMap", "sentence_map"]

LIMIT = 2000  # texts: what a page can show and a person look at
NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class SentenceMap:
    """`labels` is None where no text has one; "" stands for a text without. `total` texts were given, `cut` were longer
    than the model reads.
    """

    texts: list[str]
    labels: list[str] | None
    plane: Projection
    neighbours: Neighbours
    width: int
    layer: int | str
    pooling: str
    total: int
    seed: int
    cut: int

    def document(self) -> dict[str, object]:
        """For JSON: one record a sentence; neighbours are places in that list, counted from 0."""
        points = np.round(self.plane.points, 6).tolist()
        near = zip(self.neighbours.places.tolist(), np.round(self.neighbours.cosines, 6).tolist(), strict=True)
        labels: list[str | None] = [None] * len(self.texts) if self.labels is None else [*self.labels]
        return {
            "layer": self.layer,
            "pooling": self.pooling,
            "width": self.width,
            "total": self.total,
            "seed": self.seed,
            "cut": self.cut,
            "explained": self.plane.document()["explained"],
            "sentences": [
                {
                    "text": text,
                    "label": label,
                    "point": point,
                    "neighbours": [{"place": p, "cosine": c} for p, c in zip(places, values, strict=True)],
                }
                for text, label, point, (places, values) in zip(self.texts, labels, points, near, strict=True)
            ],
        }

    def notes(self) -> list[str]:
        """What a reader must know of the texts that were not taken whole."""
        found = left_out(self.total, len(self.texts), self.seed)
        if self.cut:
            found.append(truncation_note(self.cut))
        return found

    def payload(self, model: str, *, source: str | None = None) -> dict[str, object]:
        """The document of the view "map"; `source` is the file the texts came from, as a shell takes it.

        Without one the command holds the texts themselves, or names the CSV file that the page gives.
        """
        options = f"--model {shlex.quote(model)} --layer={shlex.quote(str(self.layer))}"
        options += f" --neighbours {self.neighbours.places.shape[1]}"
        options += "" if self.pooling == "mean" else f" --pooling {self.pooling}"
        labels = self.labels if self.labels is not None and all(self.labels) else None  # files have them all, or none
        lines = piped(self.texts, labels) if source is None else None
        columns = "text" if labels is None else "text,label"
        source = source or ("-" if lines else f"regard-map.csv --columns {columns}")
        told = (
            "  # regard-map.csv: the file of the button CSV with exact cells"
            if source.startswith("regard-map.csv")
            else ""
        )
        arguments = f"layer={self.layer!r}, pooling={self.pooling!r}, count={self.neighbours.places.shape[1]}"
        return {
            "view": "map",
            "model": {"name": model},
            **self.document(),
            "notes": self.notes(),
            "cli": f"{lines or ''} regard map {source} {options}{told}".strip(),
            "python": _python(model, self.texts, labels, arguments, short=lines is not None),
        }


def sentence_map(
    model: str | Pair,
    examples: Sequence[TextExample],
    *,
    layer: int | str = -1,
    pooling: str = "mean",
    count: int = NEIGHBOURS,
    limit: int = LIMIT,
    seed: int = 0,
    device: str = "auto",
    on_progress: Callable[[int, int], None] | None = None,
) -> SentenceMap:
    """Embed the texts, find their plane and the `count` nearest of each. Beyond `limit`, texts are drawn by lot."""
    if pooling == "none":
        raise InputError('pooling "none" gives a vector a token; a map needs one a sentence: mean, cls or max')
    if count < 1:
        raise InputError(f"{count} neighbours; expected 1 or more")
    given = [example for example in examples if example.text.strip()]
    if len(given) < 2:
        raise InputError(f"expected two sentences or more, got {len(given)}; a map of one shows nothing")
    used = [given[place] for place in drawn(len(given), limit, seed)]
    texts, labels = [example.text for example in used], [_label(example) for example in used]
    pair = load(model) if isinstance(model, str) else model
    ready = load_engine(pair, layers=layer, pooling=pooling, device=device_of(pair) if device == "auto" else device)
    tell = on_progress or (lambda done, total: None)
    vectors = ready.embed(texts, on_progress=lambda done: tell(done, len(texts)))
    return SentenceMap(
        texts=texts,
        labels=labels if any(labels) else None,
        plane=project(vectors),
        neighbours=nearest_of(vectors, count),
        width=ready.width,
        layer=layer,
        pooling=pooling,
        total=len(given),
        seed=seed,
        cut=ready.truncated,
    )


def _label(example: TextExample) -> str:
    match example.label:
        case None:
            return ""
        case tuple():
            return ", ".join(example.label) or "none"
        case _:
            return str(example.label)


def _python(model: str, texts: Sequence[str], labels: Sequence[str] | None, arguments: str, *, short: bool) -> str:
    head = "from regard.data.examples import TextExample\n"
    head += "from regard.interpret.embeddings.sentence_map import sentence_map\n"
    if short:
        pairs = [
            f"TextExample({t!r})" if labels is None else f"TextExample({t!r}, label={labels[n]!r})"
            for n, t in enumerate(texts)
        ]
        return f"{head}examples = [{', '.join(pairs)}]\nsentence_map({model!r}, examples, {arguments}).document()"
    head = (
        "from regard.data.readers import read_text_examples\n"
        "from regard.interpret.embeddings.sentence_map import sentence_map\n"
    )
    columns = ["text"] if labels is None else ["text", "label"]
    read = f"examples = read_text_examples('regard-map.csv', task='classify', columns={columns!r}).examples\n"
    return f"{head}{read}sentence_map({model!r}, examples, {arguments}).document()"
