"""One word in many texts, layer after layer: how like its vectors are, and where they lie on a plane.

`regard.interpret.probes.senses` compares several models by name; this looks at one loaded model more
closely, as the page shows it.
Knows texts, models and vectors. Knows nothing of how things are drawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loading import load
from regard.errors import InputError
from regard.inference.embedding.embedder import load_engine
from regard.interpret.embeddings.chosen import chosen, left_out
from regard.interpret.embeddings.projection import Projection, project
from regard.interpret.probes.senses import cosines, place_of, word_vectors
from regard.text import Tokenizer

__all__ = ["LIMIT", "Contexts", "contexts", "device_of"]

LIMIT = 60  # texts: their matrix has 60 times 60 cells

Pair = tuple[nn.Module, Tokenizer | None]


@dataclass(frozen=True, eq=False)
class Contexts:
    """`places` are the word's characters [start, end) in each text, `pieces` its tokens there.

    `similarity` (layers, n, n) are cosines, `planes` the principal components of each layer on their own, with the
    signs that keep the picture like the one before. Layer 0 is the embeddings' output. `total` texts were given.
    """

    word: str
    texts: list[str]
    places: list[tuple[int, int]]
    pieces: list[list[str]]
    similarity: NDArray[np.float64]
    planes: list[Projection]
    total: int
    seed: int

    def document(self) -> dict[str, object]:
        return {
            "word": self.word,
            "texts": self.texts,
            "places": [list(place) for place in self.places],
            "pieces": self.pieces,
            "similarity": np.round(self.similarity, 6).tolist(),
            "planes": [plane.document() for plane in self.planes],
            "total": self.total,
            "seed": self.seed,
        }

    def payload(self, model: str) -> dict[str, object]:
        """The document of the view "senses" for a model called `model`."""
        said = f"--model {shlex.quote(model)} -- {shlex.join([self.word, *self.texts])}"
        python = (
            "from regard.interpret.embeddings.contexts import contexts\n"
            f"contexts({model!r}, {self.word!r}, {self.texts!r}).document()"
        )
        return {
            "view": "senses",
            "model": {"name": model},
            **self.document(),
            "notes": left_out(self.total, len(self.texts), self.seed),
            "cli": f"regard senses {said}",
            "python": python,
        }


def contexts(
    model: str | Pair, word: str, texts: Sequence[str], *, limit: int = LIMIT, seed: int = 0, device: str = "auto"
) -> Contexts:
    """Look at the first place of the word in each text, two texts or more. Its pieces' vectors are averaged."""
    given = [text for text in texts if text.strip()]
    if len(given) < 2:
        raise InputError(f"expected two texts or more that have the word {word!r}, got {len(given)}; give another")
    used = chosen(given, limit, seed)
    places = [place_of(word, text, number) for number, text in enumerate(used, start=1)]
    pair = load(model) if isinstance(model, str) else model
    where = device_of(pair) if device == "auto" else device
    vectors, pieces = word_vectors(load_engine(pair, layers="concat(:)", pooling="none", device=where), used, places)
    planes: list[Projection] = []
    for layer in vectors:
        plane = project(layer)
        planes.append(plane.like(planes[-1]) if planes else plane)
    similarity = np.stack([cosines(layer) for layer in vectors])
    return Contexts(word.strip(), used, places, pieces, similarity, planes, len(given), seed)


def device_of(pair: Pair) -> str:
    """Where a loaded model is: looking at it must not move it away from those who use it too."""
    return next((parameter.device.type for parameter in pair[0].parameters()), "cpu")
