"""Attention as a page takes it: one JSON document, small enough to travel as a file.

Knows the page's names and what bytes cost. Knows no model and no HTML.

A page is to stay below 10 MB, and where that cannot be below 16 MB. So `weights`, `q` and `k` come in the first of
three forms that fits:

- whole: weights as bytes (weight * 255, rounded), q and k as float16, rollout and flow, in all at most ROOM;
- vectors: q and k as float16 and `weights` null, or the bytes of the weights alone where those are smaller, at most
  ROOM. The page makes softmax(scale * q . k + bias) of them. Rollout comes where it fits as well;
- small: the same with q and k as int8 and a step for each vector (`q_step` and `k_step`, float16), at most MOST.

Beyond that the text is cut, and `notes` says so. With 512 tokens, bytes of weights would be a poorer choice than int8
vectors even where they fitted: a weight of 1/512 is half a byte's step.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.data.examples import Picture
from regard.errors import InputError
from regard.interpret.attention.maps import AttentionMaps, AttentionRecord, Floats
from regard.interpret.attention.recording import TextTokenizer, record_attention
from regard.interpret.attention.rollout import MAX_FLOW_TOKENS, flow, rollout
from regard.render.png import data_uri

__all__ = ["MOST", "ROOM", "attention_document", "attention_page_document", "record_attention_for_page"]

ROOM = 9_000_000  # characters of base64, of the 10 MB that a page may have
MOST = 15_000_000  # of the 16 MB
HALF = 65504.0  # the largest float16
SHORTEST = 8  # tokens that are worth a page
FORMS = (("whole", ROOM), ("vectors", ROOM), ("small", MOST))


def attention_page_document(
    name: str,
    model: nn.Module,
    tokenizer: TextTokenizer,
    text: str = "",
    text_b: str | None = None,
    *,
    image: Picture | None = None,
) -> dict[str, object]:
    """The document of the view "attention" for a model called `name`: see `attention` for the inputs."""
    found, limit = record_attention_for_page(model, tokenizer, text, text_b, image=image)
    return attention_document(name, found, limit=limit)


def record_attention_for_page(
    model: nn.Module,
    tokenizer: TextTokenizer,
    text: str = "",
    text_b: str | None = None,
    *,
    image: Picture | None = None,
) -> tuple[AttentionRecord, int | None]:
    """As much attention as a page has room for, and to how many tokens the texts were cut for that, if they were."""
    found, limit = record_attention(model, tokenizer, text, text_b, image=image), None
    while _form(found.maps) is None:
        longest = max(len(side.tokens) for one in found.maps for side in (one.rows, one.columns))
        limit = min(longest - 1, longest * MOST // _size(found.maps, "small"))
        if image is not None or limit < SHORTEST:
            raise InputError(f"{_count(found.maps)} are too many for a page; expected a smaller model")
        found = record_attention(model, tokenizer, text, text_b, max_tokens=limit)
    return found, limit


def attention_document(
    name: str,
    found: AttentionRecord,
    *,
    limit: int | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> dict[str, object]:
    """The same of attention that `fitted` gave; the page opens at a kind, a layer and a head where they are given."""
    form = _form(found.maps)
    if form is None:
        raise InputError(f"{_count(found.maps)} are too many for a page; cut the text with max_tokens")
    spare = dict(FORMS)[form] - _size(found.maps, form)
    maps = [_map(one, form, joined=form == "whole" or spare >= _rollouts(found.maps)) for one in found.maps]
    first, picture = found.maps[0], found.image is not None
    chosen = {"kind": kind, "layer": layer, "head": head}
    opening = {key: str(value) for key, value in chosen.items() if value is not None}
    return {
        "view": "attention",
        "model": {"name": name, "family": found.family, "depth": first.layers, "heads": first.heads},
        "texts": list(found.texts),
        "maps": maps,
        "image": None if found.image is None else data_uri(found.image),
        "grid": None if found.grid is None else list(found.grid),
        "cut": found.num_truncated,
        "notes": _notes(found, maps, limit),
        "place": _place(found, kind=kind, layer=layer, head=head),
        "cli": _command(name, found.texts, opening, picture=picture),
        "python": _python(name, found.texts, picture=picture),
    }


def _place(found: AttentionRecord, *, kind: str | None, layer: int | None, head: int | None) -> str:
    """As behind the # of the page's address."""
    chosen = found.maps if kind is None else (found.map(kind),)
    for one in chosen:
        one.check(layer, head)
    parts = {} if kind is None else {"map": found.maps.index(chosen[0])}
    parts |= {} if layer is None else {"layer": layer}
    heads = "" if layer is None else f"heads={'all' if head is None else head}"
    query = "&".join([*(f"{key}={value}" for key, value in parts.items()), *([heads] if heads else [])])
    return "#attention" + (f"?{query}" if query else "")


def _form(maps: Sequence[AttentionMaps]) -> str | None:
    return next((form for form, limit in FORMS if _size(maps, form) <= limit), None)


def _size(maps: Sequence[AttentionMaps], form: str) -> int:
    """Characters."""
    if form == "whole":
        return sum(_weights(one) + _vectors(one, 2) for one in maps) + _rollouts(maps)
    return sum(min(_weights(one), _vectors(one, 2 if form == "vectors" else 1) or _weights(one)) for one in maps)


def _weights(one: AttentionMaps) -> int:
    return _characters(one.weights.size)


def _vectors(one: AttentionMaps, each: int) -> int:
    """0 where there are none."""
    if one.query is None or one.key is None:
        return 0
    steps = 0 if each == 2 else 2
    return sum(_characters(each * x.size) + _characters(steps * x.size // x.shape[-1]) for x in (one.query, one.key))


def _rollouts(maps: Sequence[AttentionMaps]) -> int:
    return sum(_characters(one.weights[:, 0].size) for one in maps if one.is_self_attention)


def _characters(count: int) -> int:
    return (count + 2) // 3 * 4


def _map(one: AttentionMaps, form: str, *, joined: bool) -> dict[str, object]:
    each = 1 if form == "small" else 2
    vectors = one.query is not None and (form == "whole" or _vectors(one, each) < _weights(one))
    document: dict[str, object] = {
        "kind": one.kind,
        "layers": one.layers,
        "heads": one.heads,
        "rows": list(one.rows.tokens),
        "columns": list(one.columns.tokens),
        "row_words": list(one.rows.words),
        "column_words": list(one.columns.words),
        "row_segments": list(one.rows.segments),
        "column_segments": list(one.columns.segments),
        "weights": _shares(one.weights) if form == "whole" or not vectors else None,
        "q": None,
        "k": None,
        "q_step": None,
        "k_step": None,
        "scale": one.scale,
        "bias": None if one.bias is None else _halves(one.bias),
        "causal": one.causal,
        "rollout": _shares(rollout(one.weights)) if one.is_self_attention and joined else None,
        "flow": _shares(flow(one.weights))
        if one.is_self_attention and len(one.rows.tokens) <= MAX_FLOW_TOKENS
        else None,
    }
    for letter, values in (("q", one.query), ("k", one.key)) if vectors else ():
        assert values is not None
        if each == 2:
            document[letter] = _halves(values)
        else:
            document[letter], document[f"{letter}_step"] = _bytes_and_steps(values)
    return document


def _shares(weights: NDArray[np.floating]) -> str:
    return _text(np.rint(np.clip(weights, 0, 1) * 255).astype(np.uint8))


def _halves(values: Floats) -> str:
    return _text(np.clip(values, -HALF, HALF).astype("<f2"))


def _bytes_and_steps(values: Floats) -> tuple[str, str]:
    """Each vector as whole numbers from -127 to 127 and the step between them."""
    steps = np.clip(np.abs(values).max(-1) / 127, 2.0**-14, HALF).astype("<f2")
    whole = np.clip(np.rint(values / steps[..., None].astype(np.float32)), -127, 127).astype(np.int8)
    return _text(whole), _text(steps)


def _text(array: NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _notes(found: AttentionRecord, maps: Sequence[dict[str, object]], limit: int | None) -> list[str]:
    notes = []
    if found.num_truncated:
        notes.append(found.truncation_note + (", as many as a page has room for" if limit else ""))
    joinable = [document for one, document in zip(found.maps, maps, strict=True) if one.is_self_attention]
    if any(document["rollout"] is None for document in joinable):
        notes.append("rollout is left out: the text is too long for it")
    if any(document["flow"] is None for document in joinable):
        notes.append(f"flow is left out above {MAX_FLOW_TOKENS} tokens")
    bare = [one for one, document in zip(found.maps, maps, strict=True) if document["q"] is None]
    if any(one.query is None for one in bare):
        notes.append("neurons are left out: this attention's scores are not products of a query and a key")
    if any(one.query is not None for one in bare):
        notes.append("neurons are left out: queries and keys would make the page too large")
    return notes


def _count(maps: Sequence[AttentionMaps]) -> str:
    one = max(maps, key=lambda one: one.weights.size)
    layers, heads, rows, columns = one.weights.shape
    return f"{layers} x {heads} maps of {rows} x {columns} tokens"


def _command(name: str, texts: Sequence[str], opening: dict[str, str], *, picture: bool) -> str:
    options = [part for key, value in opening.items() for part in (f"--{key}", value)]
    command = ["regard", "look", "--model", name, *options, "--output", "page.html"]
    if picture:
        return shlex.join([*command, "--image", texts[0]])
    dashed = any(text.startswith("-") for text in texts)
    return shlex.join([*command, *(["--"] if dashed else []), *texts])


def _python(name: str, texts: Sequence[str], *, picture: bool) -> str:
    if picture:
        return (
            "from regard.interpret.attention.recording import record_attention\n"
            "from regard.interpret.images import read_image\n"
            "from regard.inference.load_model import load_model\n"
            f"record_attention(*load_model({name!r}), image=read_image({texts[0]!r}))"
        )
    said = ", ".join(map(repr, texts))
    return (
        "from regard.interpret.attention.recording import record_attention\n"
        "from regard.inference.load_model import load_model\n"
        f"record_attention(*load_model({name!r}), {said})"
    )
