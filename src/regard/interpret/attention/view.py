"""The data of the page's attention view: maps as base64, in a size that a single file can have.

A page should stay below 10 MB, and must stay below 16 MB. `weights`, `q` and `k` take the first of three forms that
fits:

- whole: weights as bytes (weight * 255, rounded), q and k as float16, rollout and flow, at most PREFERRED_SIZE in all;
- vectors: q and k as float16 and `weights` null, or the bytes of the weights alone where those are smaller, at most
  PREFERRED_SIZE. The page computes softmax(scale * q . k + bias). Rollout is included if it fits as well;
- small: the same with q and k as int8 and a step for each vector (`q_step` and `k_step`, float16), at most MAX_SIZE.

Longer texts are truncated, and `notes` says so. With 512 tokens, bytes of weights would be less exact than int8
vectors even where they fit: a weight of 1/512 is half a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.errors import InputError
from regard.interpret.attention.maps import AttentionMaps, AttentionRecord, Floats, MapKind
from regard.interpret.attention.rollout import MAX_FLOW_TOKENS, flow, rollout
from regard.render.page_arrays import MAX_FLOAT16, base64_size, data_uri, encode_array, encode_float16

PREFERRED_SIZE = 9_000_000  # characters of base64, of the 10 MB that a page should have
MAX_SIZE = 15_000_000  # of the 16 MB
MIN_TOKENS = 8  # a page of fewer is not worth it
FORMS = (("whole", PREFERRED_SIZE), ("vectors", PREFERRED_SIZE), ("small", MAX_SIZE))


class ViewedModel(BaseModel):
    name: str
    family: str
    depth: int
    heads: int


class MapView(BaseModel):
    """The maps of one kind. Arrays are base64: L layers, H heads, T rows, S columns, D width of a head."""

    kind: MapKind
    layers: int
    heads: int
    rows: list[str]
    columns: list[str]
    row_words: list[int]
    column_words: list[int]
    row_segments: list[int]
    column_segments: list[int]
    row_special: list[bool]
    column_special: list[bool]
    weights: str | None  # bytes [L,H,T,S], weight times 255; null if the page computes them from q and k
    q: str | None  # float16 [L,H,T,D], or int8 with q_step
    k: str | None  # float16 [L,H,S,D], or int8 with k_step
    q_step: str | None  # float16, one per vector
    k_step: str | None
    scale: float | None
    bias: str | None  # float16 [H,T+S-1] by distance: the bias of row i and column j is at j - i + T - 1
    causal: bool
    windows: list[int | None]  # of each layer: the largest distance between row and column
    rollout: str | None  # bytes [L,T,S], 255 times the quotient of a weight and the largest of its layer
    rollout_largest: list[float]  # of each layer
    flow: str | None  # bytes [T,S], likewise
    flow_largest: float


class AttentionView(BaseModel):
    model: ViewedModel
    texts: list[str]
    maps: list[MapView]
    image: str | None  # a data URI
    grid: tuple[int, int] | None  # rows and columns of patches of the image
    truncated: int
    notes: list[str]
    place: str  # the part of the page's address after which it opens at the selection


def attention_view(record: AttentionRecord, *, weights_only: bool = False) -> AttentionView:
    """The view's data; of a text that is too long for a page, the record of its first tokens.

    `weights_only`: bytes of the weights, however many, and nothing else; for drawings, which are made at once.
    """
    page = record.for_page or record
    form = "weights" if weights_only else _form(page.maps)
    if form is None:
        raise InputError(f"{_describe(page.maps)} are too many for a page; expected a shorter text or a smaller model")
    limit = dict(FORMS).get(form, 0)
    with_rollout = form == "whole" or limit - _size(page.maps, form) >= _rollout_size(page.maps)
    views = [_map_view(maps, form, with_rollout=with_rollout) for maps in page.maps]
    first = page.maps[0]
    return AttentionView(
        model=ViewedModel(name=record.model, family=page.family, depth=first.num_layers, heads=first.num_heads),
        texts=page.texts,
        maps=views,
        image=None if page.image is None else data_uri(page.image),
        grid=page.grid,
        truncated=page.truncated,
        notes=_notes(page, views, shortened=page is not record),
        place=_place(record),
    )


def max_tokens_on_page(record: AttentionRecord) -> int | None:
    """How many tokens a page has room for, if it has no room for the whole record."""
    if _form(record.maps) is not None:
        return None
    longest = max(len(axis.tokens) for maps in record.maps for axis in (maps.rows, maps.columns))
    return min(longest - 1, longest * MAX_SIZE // _size(record.maps, "small"))


def _place(record: AttentionRecord) -> str:
    parts = {} if record.kind is None else {"map": str(record.maps.index(record.map(record.kind)))}
    if record.layer is not None:
        opened = record.maps[0] if record.kind is None else record.map(record.kind)
        layer = opened.check(record.layer, record.head)
        parts |= {"layer": str(layer), "heads": "all" if record.head is None else str(record.head)}
    query = "&".join(f"{key}={value}" for key, value in parts.items())
    return "#attention" + (f"?{query}" if query else "")


def _form(maps: Sequence[AttentionMaps]) -> str | None:
    return next((form for form, limit in FORMS if _size(maps, form) <= limit), None)


def _size(maps: Sequence[AttentionMaps], form: str) -> int:
    """Characters of base64."""
    if form == "whole":
        return sum(_weights_size(one) + _vectors_size(one, 2) for one in maps) + _rollout_size(maps)
    each = 2 if form == "vectors" else 1
    return sum(min(_weights_size(one), _vectors_size(one, each) or _weights_size(one)) for one in maps)


def _weights_size(maps: AttentionMaps) -> int:
    return base64_size(maps.weights.size)


def _vectors_size(maps: AttentionMaps, each: int) -> int:
    """The size of q and k with `each` bytes a number; 0 if there are none."""
    if maps.query is None or maps.key is None:
        return 0
    steps = 0 if each == 2 else 2
    return sum(base64_size(each * x.size) + base64_size(steps * x.size // x.shape[-1]) for x in (maps.query, maps.key))


def _rollout_size(maps: Sequence[AttentionMaps]) -> int:
    return sum(base64_size(one.weights[:, 0].size) for one in maps if one.is_self_attention)


def _map_view(maps: AttentionMaps, form: str, *, with_rollout: bool) -> MapView:
    each = 1 if form == "small" else 2
    fits = form == "whole" or (form != "weights" and _vectors_size(maps, each) < _weights_size(maps))
    with_vectors = maps.query is not None and fits
    with_flow = maps.is_self_attention and form != "weights" and len(maps.rows.tokens) <= MAX_FLOW_TOKENS
    q, q_step = _vectors(maps.query, each) if with_vectors else (None, None)
    k, k_step = _vectors(maps.key, each) if with_vectors else (None, None)
    rolled = rollout(maps.weights) if maps.is_self_attention and with_rollout else None
    flowing = flow(maps.weights) if with_flow else None
    largest = [] if rolled is None else [float(layer.max()) for layer in rolled]
    most = 1.0 if flowing is None else float(flowing.max())
    return MapView(
        kind=maps.kind,
        layers=maps.num_layers,
        heads=maps.num_heads,
        rows=list(maps.rows.tokens),
        columns=list(maps.columns.tokens),
        row_words=list(maps.rows.words),
        column_words=list(maps.columns.words),
        row_segments=list(maps.rows.segments),
        column_segments=list(maps.columns.segments),
        row_special=list(maps.rows.special),
        column_special=list(maps.columns.special),
        weights=_as_bytes(maps.weights) if form == "whole" or not with_vectors else None,
        q=q,
        k=k,
        q_step=q_step,
        k_step=k_step,
        scale=maps.scale,
        bias=None if maps.bias is None else encode_float16(maps.bias),
        causal=maps.causal,
        windows=maps.windows or [None] * maps.num_layers,
        rollout=None if rolled is None else _as_bytes(rolled / np.array(largest)[:, None, None]),
        rollout_largest=largest,
        flow=None if flowing is None else _as_bytes(flowing / most),
        flow_largest=most,
    )


def _vectors(values: Floats | None, each: int) -> tuple[str | None, str | None]:
    """Vectors as float16, or as int8 with a step for each vector."""
    if values is None or each == 2:
        return None if values is None else encode_float16(values), None
    steps = np.clip(np.abs(values).max(-1) / 127, 2.0**-14, MAX_FLOAT16).astype("<f2")
    quantized = np.clip(np.rint(values / steps[..., None].astype(np.float32)), -127, 127).astype(np.int8)
    return encode_array(quantized), encode_array(steps)


def _as_bytes(weights: NDArray[np.floating]) -> str:
    return encode_array(np.rint(np.clip(weights, 0, 1) * 255).astype(np.uint8))


def _notes(record: AttentionRecord, views: Sequence[MapView], *, shortened: bool) -> list[str]:
    notes = list(record.notes)
    if record.truncated:
        notes.append(record.truncation_note + (", as many as fit on a page" if shortened else ""))
    pairs = list(zip(record.maps, views, strict=True))
    if any(maps.is_self_attention and view.rollout is None for maps, view in pairs):
        notes.append("rollout is left out: the text is too long")
    if any(maps.is_self_attention and view.flow is None for maps, view in pairs):
        notes.append(f"flow is left out above {MAX_FLOW_TOKENS} tokens")
    if any(maps.query is None for maps in record.maps):
        notes.append("neurons are left out: the scores of this attention are not products of a query and a key")
    if any(maps.query is not None and view.q is None for maps, view in pairs):
        notes.append("neurons are left out: queries and keys would make the page too large")
    return notes


def _describe(maps: Sequence[AttentionMaps]) -> str:
    layers, heads, rows, columns = max(maps, key=lambda one: one.weights.size).weights.shape
    return f"{layers} x {heads} maps of {rows} x {columns} tokens"
