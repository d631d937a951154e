"""The figure as a page takes it: one JSON document with every tensor of every layer.

Knows the page's names and what bytes cost. Knows no model and no HTML. Numbers are float16 in base64; a tensor that
several boxes share is there once. Of what is as wide as the vocabulary, the likeliest words are told.
"""

from __future__ import annotations

import base64
import shlex
from typing import Any

import numpy as np
from torch import Tensor

from regard.interpret.figure.boxes import Box, BoxPass, NamedTensor
from regard.interpret.figure.figure import Figure

__all__ = ["WORDS", "figure_document"]

WORDS = 10  # of each row of the vocabulary's scores
HALF = 65504.0  # the largest float16


def figure_document(found: Figure, *, place: str | None = None) -> dict[str, Any]:
    """The document of the view "figure"; `place` is where the page opens, as behind the # of its address."""
    tensors = _Tensors(found)
    boxes = {box.name: _box(box, tensors) for box in found.boxes}
    positions = found.positions
    return {
        "view": "figure",
        "model": {
            "name": found.name,
            "family": found.family,
            "depth": found.depth,
            "heads": found.heads,
            "width": found.width,
            "norm_first": found.norm_first,
        },
        "text": found.text,
        "target": found.sentence.target,
        "given": found.given or "",
        "without": list(found.without),
        "switches": found.switches(),
        "tokens": {part: list(tokens) for part, tokens in found.tokens.items()},
        "layout": found.layout().document(),
        "boxes": boxes,
        "tensors": tensors.documents,
        "damage": found.ablation.document(),
        "positions": None
        if positions is None
        else {
            "arrangement": positions.arrangement,
            "shape": list(positions.matrix.shape),
            "data": None if positions.arrangement else _text(positions.matrix),
        },
        "notes": found.notes(),
        "cli": _command(found),
        "python": _python(found),
        **({} if place is None else {"place": place}),
    }


class _Tensors:
    """Documents of tensors, each once."""

    def __init__(self, found: Figure) -> None:
        self.found = found
        self.documents: list[dict[str, object]] = []
        self.numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def number(self, one: NamedTensor, *, words: bool) -> int:
        key = one.tensor.data_ptr(), tuple(one.tensor.shape)
        if key not in self.numbers:
            self.numbers[key] = len(self.documents)
            self.documents.append(self._document(one, words=words))
        return self.numbers[key]

    def _document(self, one: NamedTensor, *, words: bool) -> dict[str, object]:
        document: dict[str, object] = {"shape": list(one.tensor.shape), "rows": one.rows, "columns": one.columns}
        if words:
            return {**document, "words": self._words(one.tensor)}
        if not one.tensor.is_floating_point():
            return {**document, "values": one.tensor.tolist()}
        return {**document, "data": _text(one.tensor.float().cpu().numpy())}

    def _words(self, scores: Tensor) -> list[list[list[object]]]:
        best = scores.float().topk(min(WORDS, scores.shape[-1]))
        return [
            [[self.found.figure_model.word(number), round(value, 6)] for number, value in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _box(box: Box, tensors: _Tensors) -> dict[str, object]:
    return {
        "part": box.part,
        "group": box.group,
        "kind": box.kind,
        "title": box.title,
        "about": box.about,
        "code": box.code,
        "steps": [_step(box, step, tensors) for step in box.steps],
    }


def _step(box: Box, step: BoxPass, tensors: _Tensors) -> dict[str, object]:
    return {
        "tensors": [[one.name, tensors.number(one, words=_is_wide(box, one))] for one in step.values],
        "parameters": {name: list(shape) for name, shape in step.parameters.items()},
        "difference": step.difference,
    }


def _is_wide(box: Box, one: NamedTensor) -> bool:
    return box.kind in ("linear", "softmax") and one.name in ("out", "logits")


def _text(values: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    """Infinities, which are masked scores, stay what they are."""
    halves = np.where(np.isfinite(values), np.clip(values, -HALF, HALF), values).astype("<f2")
    return base64.b64encode(np.ascontiguousarray(halves).tobytes()).decode("ascii")


def _command(found: Figure) -> str:
    parts = ["regard", "figure", "--model", found.name]
    parts += [] if found.given is None else ["--target", found.given]
    parts += ["--without", ",".join(found.without)] if found.without else []
    parts += ["--output", "page.html"]
    return shlex.join([*parts, *(["--"] if found.text.startswith("-") else []), found.text])


def _python(found: Figure) -> str:
    said = [f"*load_model({found.name!r})", repr(found.text)]
    said += [] if found.given is None else [repr(found.given)]
    said += [f"without={','.join(found.without)!r}"] if found.without else []
    return (
        "from regard.interpret.figure.figure import draw_figure\nfrom regard.inference.load_model import load_model\n"
        f"draw_figure({', '.join(said)}, name={found.name!r})"
    )
