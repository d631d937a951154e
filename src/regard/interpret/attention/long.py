"""The attention of one head over a text of thousands of tokens, in memory that does not grow with the square of them.

Only the queries, the keys and the logarithm of each row's normalizer are kept: any tile of the map follows from them.
An overview has the largest weight of each of its cells; it is computed a block of rows at a time.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel, require_tokenizer
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.interpret.attention.maps import check_text, display_token
from regard.interpret.residual_stream import last_stack
from regard.models.family import can, describe_model, family_name
from regard.nn.masks import Padded
from regard.nn.recording import check_head, check_layer, record
from regard.nn.training import evaluation_mode
from regard.render.page_arrays import Float32Array
from regard.render.result import Result, Table
from regard.tasks.encoder_with_head import EncoderWithHead

MAX_TOKENS = 8192
OVERVIEW = 512  # cells of a side
TILE = 256  # tokens of a side that the page shows at once
BLOCK = 256  # rows that are computed at a time
STRONGEST = 20  # links that are listed


class AttentionLink(BaseModel):
    """Token `row` attends to token `column`, counted from 0."""

    row: int
    column: int
    weight: float


class LongAttention(Result):
    """The attention of one head: the weight of row i and column j is exp(scale * query[i] . key[j] - normalizer[i]).

    It is 0 where j > i if `causal`, and where |i - j| > `window`. `query` and `key` are (T, D), `normalizer` is (T,).
    `overview` (R, R) has the largest weight of each cell of `cell` x `cell` tokens. `strongest` are the strongest links
    between different words; the first token, which many heads attend to when nothing else fits, does not count.
    """

    page_view: ClassVar[str | None] = "long_attention"

    model: str = ""
    family: str
    layer: int
    head: int
    tokens: list[str]
    truncated: int
    causal: bool
    window: int | None
    scale: float
    query: Float32Array
    key: Float32Array
    normalizer: Float32Array
    cell: int
    overview: Float32Array
    strongest: list[AttentionLink]
    notes: list[str] = Field(default_factory=list)

    def tile(self, row: int, column: int, size: int = TILE) -> NDArray[np.float32]:
        """The weights of up to `size` rows and columns from (row, column) on."""
        rows, columns = (np.arange(one, min(one + size, len(self.tokens))) for one in (row, column))
        scores = self.scale * (self.query[rows] @ self.key[columns].T)
        weights = np.exp(scores - self.normalizer[rows, None])
        distance = rows[:, None] - columns[None]
        hidden = (distance < 0) if self.causal else np.zeros(distance.shape, dtype=bool)
        if self.window is not None:
            hidden |= np.abs(distance) > self.window
        result: NDArray[np.float32] = np.where(hidden, 0, weights).astype(np.float32)
        return result

    def to_text(self) -> str:
        name = self.model or self.family
        lines = [f"{name}, layer {self.layer}, head {self.head}: {len(self.tokens):,} tokens; strongest links", ""]
        lines += [
            f"  {link.weight:6.1%}  {link.row:6} {escape_controls(self.tokens[link.row])!r} -> "
            f"{link.column:6} {escape_controls(self.tokens[link.column])!r}"
            for link in self.strongest
        ]
        return "\n".join(lines)

    def to_table(self) -> Table:
        return ("row", "column", "query_token", "key_token", "weight"), [
            (link.row, link.column, self.tokens[link.row], self.tokens[link.column], link.weight)
            for link in self.strongest
        ]


def long_attention(loaded: LoadedModel, text: str, *, layer: int, head: int) -> LongAttention:
    """Record one head of an encoder or a causal model over a text of up to MAX_TOKENS; the rest is truncated.

    Layers count from 1 (-1 is the last), heads from 0. Layers after the requested one do not run.
    """
    model: Any = loaded.model.encoder if isinstance(loaded.model, EncoderWithHead) else loaded.model
    if not (can(model, "text-encoder") or can(model, "causal-lm")):
        raise InputError(f"attention over long texts needs a BERT or a GPT, and this is {describe_model(model)} model")
    tokenizer = require_tokenizer(model, loaded.tokenizer)
    check_text(text)
    encoding = tokenizer.encode(text, max_length=min(MAX_TOKENS, model.config.max_position_embeddings))
    layers: Any = last_stack(model).layers
    layer = check_layer(layer, len(layers))
    attention = layers[layer - 1].attention
    check_head(head, attention.heads)
    ids = torch.tensor([encoding.ids], device=next(model.parameters()).device)
    with evaluation_mode(model):
        with record(layers[layer - 1]) as tape:
            for number, _ in enumerate(model.states(ids, Padded())):
                if number == layer:
                    break
        call = next(iter(tape.calls.values()))[-1]  # layers may share one module, as in ALBERT
        if attention.score is not None or call.bias is not None:
            raise InputError(
                f"the attention scores of {describe_model(model)} model are not products of queries and keys alone; "
                "regard look shows its maps"
            )
        query, key = call.vectors("query")[0, head].float().cpu(), call.vectors("key")[0, head].float().cpu()
        scale = attention.score_scale(call.query)
        result = _summarize(query, key, scale, attention, list(encoding.special_tokens_mask))
    notes = []
    if encoding.num_truncated:
        notes.append(f"{encoding.num_truncated:,} tokens were truncated; {len(encoding):,} remain")
    return LongAttention(
        model=loaded.name,
        family=family_name(model),
        layer=layer,
        head=head,
        tokens=[display_token(tokenizer, one) for one in encoding.ids],
        truncated=encoding.num_truncated,
        causal=attention.causal,
        window=attention.window,
        scale=scale,
        query=query.numpy(),
        key=key.numpy(),
        notes=notes,
        **result,
    )


def _summarize(query: Tensor, key: Tensor, scale: float, attention: Any, special: list[bool]) -> dict[str, Any]:
    """The normalizers, the overview and the strongest links, BLOCK rows at a time."""
    length = len(query)
    cell = -(-length // OVERVIEW)
    side = -(-length // cell)
    overview = torch.zeros(side, side)
    normalizer = torch.empty(length)
    ignored = torch.tensor(special)
    ignored[0] = True
    positions = torch.arange(length)
    links: list[AttentionLink] = []
    rows_at_once = max(1, BLOCK // cell) * cell
    for start in range(0, length, rows_at_once):
        rows = positions[start : start + rows_at_once]
        scores = scale * (query[rows] @ key.T)
        distance = rows[:, None] - positions[None]
        if attention.causal:
            scores.masked_fill_(distance < 0, -torch.inf)
        if attention.window is not None:
            scores.masked_fill_(distance.abs() > attention.window, -torch.inf)
        normalizer[rows] = scores.logsumexp(-1)
        weights = (scores - normalizer[rows, None]).exp_()
        padded = torch.zeros(-(-len(rows) // cell) * cell, side * cell)
        padded[: len(rows), :length] = weights
        pooled = padded.view(-1, cell, side, cell).amax((1, 3))
        overview[start // cell : start // cell + len(pooled)] = pooled
        weights.masked_fill_(ignored[None] | ignored[rows, None] | (distance == 0), 0)
        best = weights.flatten().topk(min(STRONGEST, weights.numel()))
        links += [
            AttentionLink(row=start + index // length, column=index % length, weight=weight)
            for index, weight in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            if weight > 0
        ]
        links = sorted(links, key=lambda link: (-link.weight, link.row, link.column))[:STRONGEST]
    return {"normalizer": normalizer.numpy(), "cell": cell, "overview": overview.numpy(), "strongest": links}
