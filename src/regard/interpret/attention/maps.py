"""Attention maps as arrays, with the tokens along both sides and the queries and keys they are computed from.

Layers are numbered from 1 and heads from 0, so index 0 of an array is layer 1.
Shapes: L layers, H heads, T query tokens (rows), S key tokens (columns), D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from torch import Tensor

from regard.errors import InputError
from regard.inference.generation.text_generator import token_text
from regard.nn.recording import Tape, check_head, check_layer
from regard.render.result import Result, Table
from regard.render.terminal import padded
from regard.text import Encoding, Tokenizer

SPACE = "␣"
SENTENCEPIECE_SPACE = "▁"  # as a token by itself it decodes to nothing
WHITESPACE_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}

Floats = NDArray[np.float32]
MapKind = Literal["encoder", "decoder", "cross", "lstm", "vit"]
WEIGHT_BYTES = 8  # of a weight in JSON, such as 0.00195


def _round(weights: Floats) -> Any:
    return np.round(weights.astype(np.float64), 6).tolist()


Weights = Annotated[Floats, PlainSerializer(_round, return_type=list[list[list[list[float]]]])]


@dataclass(frozen=True)
class TokenAxis:
    """Tokens with the index of the word (from 0) and of the text (0 or 1) that each belongs to.

    `special` marks tokens that are not part of a text, such as [CLS]; by default there are none.
    """

    tokens: tuple[str, ...]
    words: tuple[int, ...]
    segments: tuple[int, ...]
    special: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.special:
            object.__setattr__(self, "special", (False,) * len(self.tokens))
        if not len(self.tokens) == len(self.words) == len(self.segments) == len(self.special):
            raise ValueError(
                f"{len(self.tokens)} tokens, {len(self.words)} words, {len(self.segments)} segments, "
                f"{len(self.special)} marks of special tokens"
            )


class AttentionMaps(BaseModel):
    """All maps of one kind: `weights` (L, H, T, S), with rows that sum to 1.

    `query` (L, H, T, D) and `key` (L, H, S, D) are None if the score is not their product, as in additive attention.
    Otherwise weights = softmax(scale * query . key + bias), over the tokens up to the row's own if `causal`, and in a
    layer with one of the `windows` over tokens up to that distance. `bias`
    (H, T + S - 1) depends on the distance alone, as in T5: the bias of row i and column j is at j - i + T - 1.
    `is_self_attention`: tokens exchange information through these maps only, so that rollout and flow apply.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    kind: MapKind
    layers: list[int]
    heads: list[int]
    causal: bool
    scale: float | None
    rows: TokenAxis
    columns: TokenAxis
    weights: Weights
    query: Floats | None = Field(exclude=True)
    key: Floats | None = Field(exclude=True)
    bias: Floats | None = Field(default=None, exclude=True)
    windows: list[int | None] = Field(default=[], exclude=True)  # of the layers; empty: none has one
    is_self_attention: bool = Field(default=False, exclude=True)

    @property
    def num_layers(self) -> int:
        return len(self.weights)

    @property
    def num_heads(self) -> int:
        return int(self.weights.shape[1])

    def select(self, layer: int | None = None, head: int | None = None) -> AttentionMaps:
        """The maps of one layer, from 1 (-1 is the last), and one head, from 0, or of all."""
        number = self.check(layer, head)
        layers = slice(None) if number is None else slice(number - 1, number)
        heads = slice(None) if head is None else slice(head, head + 1)
        chosen = {"weights": self.weights, "query": self.query, "key": self.key}
        arrays: dict[str, Any] = {
            name: None if array is None else array[layers, heads] for name, array in chosen.items()
        }
        chosen_layers = {"layers": self.layers[layers], "windows": self.windows[layers]}
        return self.model_copy(update={**chosen_layers, "heads": self.heads[heads], **arrays})

    def check(self, layer: int | None, head: int | None) -> int | None:
        """The number of the layer, from 1; raises InputError for a layer or a head that does not exist."""
        owner = f"this model's {self.kind} attention"
        if head is not None:
            check_head(head, self.num_heads, owner=owner)
        return None if layer is None else check_layer(layer, self.num_layers, owner=owner)


class AttentionRecord(Result):
    """The attention maps of one model for one text, pair or image.

    `texts` are the inputs and, for an encoder-decoder, the output. `image` is the image (height, width) or (height,
    width, 3) as the model reads it, and `grid` its rows and columns of patches. `truncated` counts the tokens that did
    not fit. `kind`, `layer` and `head` select what text, table, drawing and JSON show, and where the page opens.
    """

    page_view: ClassVar[str | None] = "attention"
    view_type: ClassVar[str | None] = "regard.interpret.attention.view:AttentionView"

    model: str = ""
    family: str
    texts: list[str]
    truncated: int = 0
    notes: list[str] = Field(default_factory=list)
    grid: tuple[int, int] | None = None
    maps: list[AttentionMaps]
    image: NDArray[np.uint8] | None = Field(default=None, exclude=True)
    kind: MapKind | None = Field(default=None, exclude=True)
    layer: int | None = Field(default=None, exclude=True)
    head: int | None = Field(default=None, exclude=True)
    for_page: AttentionRecord | None = Field(default=None, exclude=True)  # of a shorter text, where a page needs one

    @property
    def truncation_note(self) -> str:
        """A note on the tokens that did not fit; "" if all did."""
        remaining = max(len(maps.columns.tokens) for maps in self.maps)
        return f"{self.truncated:,} tokens were truncated; {remaining:,} remain" if self.truncated else ""

    def map(self, kind: str | None = None) -> AttentionMaps:
        """The maps of a kind; by default the cross-attention of an encoder-decoder, else the only maps."""
        if kind is None:
            return self.maps[-1]
        for maps in self.maps:
            if maps.kind == kind:
                return maps
        raise InputError(
            f"no {kind} attention in this {self.family} model; it has {', '.join(maps.kind for maps in self.maps)}"
        )

    def select(self, *, kind: MapKind | None, layer: int | None, head: int | None) -> AttentionRecord:
        """The same record with another selection; InputError if the model does not have it."""
        if head is not None and layer is None:
            raise InputError(f"head is {head}, but no layer is given; expected layer, counted from 1, as well")
        for maps in self.maps if kind is None else [self.map(kind)]:
            maps.check(layer, head)
        return self.model_copy(update={"kind": kind, "layer": layer, "head": head})

    def to_dict(self) -> dict[str, Any]:
        return self.model_copy(update={"maps": self._selected()}).model_dump(mode="json")

    def document_bytes(self) -> int:
        return sum(WEIGHT_BYTES * one.weights.size for one in self._selected())

    def _selected(self) -> list[AttentionMaps]:
        maps = self.maps if self.kind is None else [self.map(self.kind)]
        return [one.select(self.layer, self.head) for one in maps]

    def to_text(self) -> str:
        """For each token the one it attends to most, in the selected layer or the last, averaged over heads."""
        maps = self.map(self.kind)
        selected = maps.select(-1 if self.layer is None else self.layer, self.head)
        which = f"head {self.head}" if self.head is not None else "mean of all heads"
        names = padded(" ".join(token.split()) for token in maps.rows.tokens)
        where = f"layer {selected.layers[0]}, {which}"
        lines = [f"{maps.kind} attention of {self.family}, {where}: where each token attends most", ""]
        for name, row in zip(names, selected.weights[0].mean(axis=0), strict=True):
            best = int(row.argmax())
            target = " ".join(maps.columns.tokens[best].split())
            lines.append(f"  {name}  {float(row[best]):6.1%}  {target}")
        return "\n".join(lines)

    def to_table(self) -> Table:
        maps = self.map(self.kind).select(self.layer, self.head)
        rows: list[list[object]] = []
        for (layer, head, row, column), weight in np.ndenumerate(maps.weights):
            tokens = maps.rows.tokens[row], maps.columns.tokens[column]
            rows.append([maps.kind, maps.layers[layer], maps.heads[head], row, column, *tokens, float(weight)])
        return ["kind", "layer", "head", "row", "column", "query_token", "key_token", "weight"], rows

    def view_data(self) -> dict[str, object]:
        from regard.interpret.attention.view import attention_view

        return attention_view(self).model_dump(mode="json")

    def drawing_data(self) -> dict[str, object]:
        """Without a layer, and for an image, a map of every head; else lines between tokens."""
        from regard.interpret.attention.view import attention_view

        view = attention_view(self, weights_only=True)
        mode = "image" if self.image is not None else "grid" if self.layer is None else "lines"
        place = view.place + ("&" if "?" in view.place else "?") + f"mode={mode}"
        return {"view": "attention", **view.model_dump(mode="json"), "place": place}


def maps_from_tape(
    tape: Tape,
    kind: MapKind,
    rows: TokenAxis,
    columns: TokenAxis,
    *,
    part: str,
    site: str = "self",
    is_self_attention: bool = False,
) -> AttentionMaps:
    """The maps of one part of a model that was recorded with a single text."""
    sites = sorted((one for one in tape.calls if (one.part, one.kind) == (part, site)), key=lambda one: one.layer)
    first = tape.calls[sites[0]][0]
    is_product = first.attention.score is None
    weights = _stack(tape.attention(site, part))
    if weights.shape[2:] != (len(rows.tokens), len(columns.tokens)):
        raise ValueError(f"maps of {weights.shape[2:]} for {len(rows.tokens)} x {len(columns.tokens)} tokens")
    return AttentionMaps(
        kind=kind,
        layers=list(range(1, weights.shape[0] + 1)),
        heads=list(range(weights.shape[1])),
        causal=first.attention.causal and site == "self",
        scale=first.attention.score_scale(first.query) if is_product else None,
        rows=rows,
        columns=columns,
        weights=weights,
        query=_stack(tape.queries(site, part)) if is_product else None,
        key=_stack(tape.keys(site, part)) if is_product else None,
        bias=None if first.bias is None else _by_distance(first.bias),
        windows=[tape.calls[one][0].attention.window for one in sites],
        is_self_attention=is_self_attention,
    )


def _stack(layers: Sequence[Tensor]) -> Floats:
    array: Floats = torch.stack([layer[0] for layer in layers]).float().cpu().numpy()
    return array


def _by_distance(bias: Tensor) -> Floats:
    """From (1, H, T, S), which depends on the distance alone: the first column from below, then the first row."""
    column, row = bias[0, :, :, 0].flip(-1), bias[0, :, 0, 1:]
    array: Floats = torch.cat([column, row], dim=-1).float().cpu().numpy()
    return array


def axis_of_encoding(tokenizer: Tokenizer, encoding: Encoding, *, second_text: int | None = None) -> TokenAxis:
    """The axis of an encoded text or pair; each special token is a word of its own.

    `second_text` is the character offset at which the second of two joined texts starts.
    """
    segments = (
        _segments(encoding) if second_text is None else [int(start >= second_text) for start, _ in encoding.offsets]
    )
    words, index = [], -1
    previous: tuple[int, int] | None = None
    for segment, word in zip(segments, encoding.words, strict=True):
        current = None if word is None else (segment, word)
        index += current is None or current != previous
        words.append(index)
        previous = current
    special = tuple(encoding.special_tokens_mask)
    return TokenAxis(_tokens(tokenizer, encoding.ids), tuple(words), tuple(segments), special)


def axis_of_ids(tokenizer: Tokenizer, ids: Sequence[int], *, special: int) -> TokenAxis:
    """The axis of ids whose last `special` ids are special tokens. Spaces separate words."""
    text_ids = ids[: len(ids) - special]
    words = [len(f"{tokenizer.decode(text_ids[: end + 1])}.".split()) - 1 for end in range(len(text_ids))]
    following = words[-1] + 1 if words else 0
    marks = (*(False for _ in text_ids), *(True for _ in ids[len(text_ids) :]))
    every_word = (*words, *range(following, following + special))
    return TokenAxis(_tokens(tokenizer, ids), every_word, (0,) * len(ids), marks)


def shift_right(first: str, axis: TokenAxis) -> TokenAxis:
    """The decoder inputs at which the tokens of an axis are predicted: the start token, then all but the last."""
    words = (0, *(word + 1 for word in axis.words[:-1]))
    return TokenAxis((first, *axis.tokens[:-1]), words, axis.segments, (True, *axis.special[:-1]))


def axis_of_patches(grid: tuple[int, int], num_special: int = 1) -> TokenAxis:
    """[CLS] and, in DeiT, [DIST], then the patches of an image by row and column from 1."""
    special = ("[CLS]", "[DIST]")[:num_special]
    names = [f"{row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1)]
    count = num_special + len(names)
    marks = (*(True for _ in special), *(False for _ in names))
    return TokenAxis((*special, *names), tuple(range(count)), (0,) * count, marks)


def _segments(encoding: Encoding) -> list[int]:
    """The token type ids; where all are 0, as in RoBERTa, the special tokens between two texts separate them."""
    if any(encoding.segments):
        return list(encoding.segments)
    text_positions = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
    second = next((position for position in text_positions[1:] if encoding.special_tokens_mask[position - 1]), None)
    if second is None:
        return list(encoding.segments)
    separator = next(
        position for position in range(text_positions[0], second) if encoding.special_tokens_mask[position]
    )
    return [int(position > separator) for position in range(len(encoding.ids))]


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(display_token(tokenizer, token_id) for token_id in ids)


def check_text(text: str, what: str = "text") -> None:
    """Raise InputError for a text without words."""
    if not text.strip():
        raise InputError(f"the {what} is empty; expected at least a word")


def display_token(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as text; a token of white space alone becomes one visible sign per character."""
    text = token_text(tokenizer, token_id)
    if text == SENTENCEPIECE_SPACE and not tokenizer.decode([token_id]):
        return SPACE
    return text if text.strip() else "".join(WHITESPACE_SIGNS.get(character, SPACE) for character in text)
