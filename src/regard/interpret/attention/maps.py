"""Attention maps as plain arrays: who looks at whom and how much, with the queries and keys that say why.

Knows a tape and how arrays are named. Knows no text, no family and no file. L layers, H heads, T tokens that look, S
tokens looked at, D the width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError
from regard.nn.tape import Tape

__all__ = ["AttentionMaps", "AttentionRecord", "Floats", "MapKind", "TokenAxis", "maps_from_tape"]

Floats = NDArray[np.float32]
MapKind = Literal["encoder", "decoder", "cross", "lstm", "vit"]


@dataclass(frozen=True)
class TokenAxis:
    """The tokens along one side of a map: for each the number of its word from 0, and of its text (0 or 1)."""

    tokens: tuple[str, ...]
    words: tuple[int, ...]
    segments: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.words) == len(self.segments):
            raise ValueError(f"{len(self.tokens)} tokens, {len(self.words)} words, {len(self.segments)} segments")


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """All maps of one kind: `weights` (L, H, T, S), rows that sum to 1.

    `query` (L, H, T, D) and `key` (L, H, S, D) are None where the score is not their product, as in Bahdanau's. Else
    weights = softmax(scale * query . key + bias), over the tokens up to the row's own where it is `causal`. `bias` (H,
    T + S - 1) depends on the distance alone, as T5's does: that of row i and column j is at j - i + T - 1.
    `alone`: the rows learn of each other through these maps only, so that layers can be joined to rollout and flow.
    """

    kind: MapKind
    rows: TokenAxis
    columns: TokenAxis
    weights: Floats
    query: Floats | None
    key: Floats | None
    scale: float | None
    bias: Floats | None
    causal: bool
    is_self_attention: bool

    @property
    def layers(self) -> int:
        return len(self.weights)

    @property
    def heads(self) -> int:
        return int(self.weights.shape[1])

    def select(self, layer: int | None = None, head: int | None = None) -> Floats:
        """The weights of a layer and a head, counted from 0, or of all: always (L, H, T, S)."""
        self.check(layer, head)
        layers = slice(None) if layer is None else slice(layer, layer + 1)
        heads = slice(None) if head is None else slice(head, head + 1)
        return self.weights[layers, heads]

    def check(self, layer: int | None, head: int | None) -> None:
        """InputError for a layer or a head that is not there."""
        for what, value, count in (("layer", layer, self.layers), ("head", head, self.heads)):
            if value is not None and not 0 <= value < count:
                has = f"{what}s 0 to {count - 1}" if count > 1 else f"one {what}, number 0"
                raise InputError(f"no {what} {value}: this model's {self.kind} attention has {has}")

    def document(self, *, layer: int | None = None, head: int | None = None) -> dict[str, object]:
        """For JSON: tokens, and the weights of the chosen layers and heads as nested lists."""
        weights = self.select(layer, head)
        return {
            "kind": self.kind,
            "layers": list(range(self.layers)) if layer is None else [layer],
            "heads": list(range(self.heads)) if head is None else [head],
            "causal": self.causal,
            "scale": self.scale,
            "rows": _named(self.rows),
            "columns": _named(self.columns),
            "weights": np.round(weights.astype(np.float64), 6).tolist(),
        }


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """What one model did with one text, pair or picture.

    `texts` are what was read, then what was said by a model that answers. `image` is the picture (height, width) or
    (height, width, 3) as the model sees it, and `grid` its rows and columns of patches. `cut` counts the tokens that
    did not fit.
    """

    family: str
    texts: tuple[str, ...]
    maps: tuple[AttentionMaps, ...]
    num_truncated: int = 0
    image: NDArray[np.uint8] | None = None
    grid: tuple[int, int] | None = None

    @property
    def truncation_note(self) -> str:
        """What to tell of the tokens that did not fit; "" where all did."""
        kept = max(len(one.columns.tokens) for one in self.maps)
        return f"{self.num_truncated:,} tokens were cut, and {kept:,} are looked at" if self.num_truncated else ""

    def map(self, kind: str | None = None) -> AttentionMaps:
        """The maps of a kind; by default those between two texts where there are any, else the only ones."""
        if kind is None:
            return self.maps[-1]
        for one in self.maps:
            if one.kind == kind:
                return one
        raise InputError(
            f"no {kind} attention in this {self.family} model; it has {', '.join(m.kind for m in self.maps)}"
        )

    def document(
        self, *, kind: str | None = None, layer: int | None = None, head: int | None = None
    ) -> dict[str, object]:
        """For JSON; a kind, a layer and a head narrow what is in it."""
        maps = self.maps if kind is None else (self.map(kind),)
        return {
            "family": self.family,
            "texts": list(self.texts),
            "cut": self.num_truncated,
            "grid": None if self.grid is None else list(self.grid),
            "maps": [one.document(layer=layer, head=head) for one in maps],
        }


def maps_from_tape(
    tape: Tape,
    kind: MapKind,
    rows: TokenAxis,
    columns: TokenAxis,
    *,
    part: str,
    site: str = "self",
    alone: bool = False,
) -> AttentionMaps:
    """The maps of one part of a model that was recorded with a single text."""
    places = sorted((one for one in tape.calls if (one.part, one.kind) == (part, site)), key=lambda one: one.layer)
    first = tape.calls[places[0]][0]
    product = first.attention.score is None
    found = AttentionMaps(
        kind=kind,
        rows=rows,
        columns=columns,
        weights=_array(tape.attention(site, part)),
        query=_array(tape.queries(site, part)) if product else None,
        key=_array(tape.keys(site, part)) if product else None,
        scale=first.attention.score_scale(first.query) if product else None,
        bias=None,
        causal=first.attention.causal and site == "self",
        is_self_attention=alone,
    )
    shape = (len(rows.tokens), len(columns.tokens))
    if found.weights.shape[2:] != shape:
        raise ValueError(f"maps of {found.weights.shape[2:]} for {shape} tokens")
    return found if first.bias is None else replace(found, bias=_by_distance(first.bias))


def _array(layers: Sequence[Tensor]) -> Floats:
    array: Floats = torch.stack([layer[0] for layer in layers]).float().cpu().numpy()
    return array


def _by_distance(bias: Tensor) -> Floats:
    """(1, H, T, S), which depends on the distance alone: the first column from below, then the first row."""
    column, row = bias[0, :, :, 0].flip(-1), bias[0, :, 0, 1:]
    array: Floats = torch.cat([column, row], dim=-1).float().cpu().numpy()
    return array


def _named(side: TokenAxis) -> dict[str, object]:
    return {"tokens": list(side.tokens), "words": list(side.words), "segments": list(side.segments)}
