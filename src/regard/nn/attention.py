"""Attention: each query computes a weighted average of values, with weights from its scores with the keys.

One class implements multi-head, cross and causal attention and the attention of recurrent models. Luong's dot attention
is multi-head attention with one head, no projections and scale 1; the "general" form projects the keys, and Bahdanau's
attention changes only the score. Residuals and norms are in `block`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn import recording
from regard.nn.cache import KVCache
from regard.nn.kernels import HALF, KernelOptions, packed_attention, padded_attention, repeat_heads
from regard.nn.masks import Context, Layout, Packed, Padded, attention_mask, length_groups
from regard.nn.recording import AppliedEdits


class SeparateProjections(nn.Module):
    """Projects x to queries and the memory to keys and values, with three modules."""

    def __init__(self, query: nn.Module, key: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.query, self.key, self.value = query, key, value

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), self.key(memory), self.value(memory)


class FusedProjection(nn.Linear):
    """The query, key and value projections of self-attention in one matrix product, which is faster than three.

    Keys and values have `key_inner` numbers each, by default as many as the queries.
    """

    def __init__(self, width: int, inner: int, *, key_inner: int | None = None, bias: bool = True) -> None:
        sizes = inner, key_inner or inner, key_inner or inner
        super().__init__(width, sum(sizes), bias=bias)
        self.sizes = sizes

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if memory is not x:
            raise ValueError(
                "FusedProjection supports self-attention only; use SeparateProjections to attend to a memory"
            )
        query, key, value = torch.split(super().forward(x), list(self.sizes), dim=-1)
        return query, key, value


class AdditiveScore(nn.Module):
    """Bahdanau's score v . tanh(q + k). With projected q and k this is v . tanh(W [q ; k]), with W split in two."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores: Tensor = self.v(torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)))
        return scores.squeeze(-1)


class SoftcapScore(nn.Module):
    """cap * tanh(scale * q . k / cap): scores that cannot exceed `cap` (Gemma 2). Use it with an attention of scale 1.

    Fused kernels cannot compute it, so the attention map is materialized.
    """

    def __init__(self, cap: float, scale: float) -> None:
        super().__init__()
        if cap <= 0:
            raise InputError(f"the cap of the attention scores is {cap}; it must be above 0")
        self.cap, self.scale = cap, scale

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        if query.dtype in HALF:
            query, key = query.float(), key.float()
        return softcap(query @ key.transpose(-2, -1) * self.scale, self.cap)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Limit values smoothly to (-cap, cap)."""
    return cap * torch.tanh(x / cap)


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    scale: float,
    score: nn.Module | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the attention map softmax(scale * score(q, k) + bias), (B, H, T, S)."""
    if query.dtype in HALF and score is None:  # like the fused kernels: scores and softmax in float32
        query, key = query.float(), key.float()
    scores = query @ key.transpose(-2, -1) if score is None else score(query, key)
    scores = scores * scale
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return scores.softmax(-1)
    # Fully masked rows become zeros, as in the fused kernels, instead of NaN.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(~mask, 0.0)


class Attention(nn.Module):
    """Attention of projected queries over projected keys and values; `output` projects the result.

    `project` returns queries, keys and values; keys and values may have fewer heads than the queries (grouped-query
    attention). `query_norm` and `key_norm` normalize each head of the queries and keys, and
    `positions(query, key, position_ids)`, with queries and keys (..., H, D), then encodes positions in them, like
    `Rotary`. A query attends to keys at a distance of up to `window`, by default to all. `scale` defaults to
    1/sqrt(head width).

    The batch may be padded (B, T, W) or packed (N, W). The fast path never materializes the attention map; the
    explicit path, for a score module or an edit, does. Both compute the same result.
    """

    def __init__(
        self,
        project: nn.Module,
        output: nn.Module,
        *,
        heads: int = 1,
        scale: float | None = None,
        score: nn.Module | None = None,
        positions: nn.Module | None = None,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        causal: bool = False,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.project, self.output, self.score, self.positions = project, output, score, positions
        self.query_norm, self.key_norm = query_norm, key_norm
        self.heads, self.scale, self.causal, self.window, self.dropout = heads, scale, causal, window, dropout

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        """Attend from x to itself, or to the memory of the context.

        Returns the output for all positions, or (M, W) for the `output_positions` of the context.
        """
        context = Context.of(context)
        layout, memory, bias = context.layout, context.memory, context.bias
        if isinstance(layout, Packed):
            if context.cache is not None:
                raise ValueError("a cache needs a padded batch: a packed batch holds complete sequences")
            query, key, value = self.heads_of(x, context)
            keys = layout if memory is None else context.memory_layout
            if not isinstance(keys, Packed):
                raise ValueError("packed queries need a packed memory and its layout")
            mixed = self.attend_packed(query, key, value, layout, keys, bias)
        else:
            query, key, value = self._cached(x, context)
            keys = layout if memory is None else (context.memory_layout or Padded())
            if not isinstance(keys, Padded):
                raise ValueError("padded queries need a padded memory and its layout")
            edit = recording.record_attention(self, query, key, None, keys, bias)
            mixed = self.attend_padded(query, key, value, keys, bias, edit).transpose(1, 2)
        mixed = mixed.flatten(-2)
        result: Tensor = self.output(context.select(mixed))
        return result

    def context(self, query: Tensor, values: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attend from one query (B, W) to values (B, S, W); return the context (B, W) and the weights (B, S, 1)."""
        q, k, v = (self._split(p).transpose(1, 2) for p in self.project(query[:, None], values))
        keys = Padded(keep)
        edit = recording.record_attention(self, q, k, None, keys, None)
        weights = self.weights(q, k, keys)
        weights = weights if edit is None else edit(weights)
        return self.output((weights.to(v.dtype) @ v).transpose(1, 2).flatten(-2))[:, 0], weights.mean(1).transpose(1, 2)

    def _split(self, x: Tensor, heads: int | None = None) -> Tensor:
        heads = heads or self.heads
        return x.view(*x.shape[:-1], heads, x.shape[-1] // heads)

    def weights(self, query: Tensor, key: Tensor, keys: Padded, bias: Tensor | None = None) -> Tensor:
        """Return the attention map (B, H, T, S) of queries (B, H, T, D) and keys, which may have fewer heads."""
        key = repeat_heads(key, query.shape[1])
        mask = attention_mask(keys, query, query.shape[2], key.shape[2], causal=self.causal, window=self.window)
        return attention_weights(query, key, scale=self.score_scale(query), score=self.score, bias=bias, mask=mask)

    def score_scale(self, query: Tensor) -> float:
        """Return the factor of the scores."""
        return 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale

    def heads_of(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (..., H, D), with positions."""
        query, key, value = self.project(x, x if context.memory is None else context.memory)
        key_heads = self.heads * key.shape[-1] // query.shape[-1]
        query, key, value = self._split(query), self._split(key, key_heads), self._split(value, key_heads)
        query = query if self.query_norm is None else self.query_norm(query)
        key = key if self.key_norm is None else self.key_norm(key)
        if self.positions is not None and context.memory is None:
            query, key = self.positions(query, key, context.layout.positions(x, context.start))
        return query, key, value

    def _cached(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (B, H, T, D), cached steps included. A memory is projected only once."""
        cache: KVCache | None = context.cache
        if context.memory is not None and cache is not None and cache.key is not None and cache.value is not None:
            assert isinstance(self.project, SeparateProjections)
            return self._split(self.project.query(x)).transpose(1, 2), cache.key, cache.value
        query, key, value = (part.transpose(1, 2) for part in self.heads_of(x, context))
        if cache is not None:
            key, value = cache.extend(key, value)
        return query, key, value

    def attend_packed(
        self, query: Tensor, key: Tensor, value: Tensor, layout: Packed, keys: Packed, bias: Tensor | None
    ) -> Tensor:
        """Attend within each sequence: all in one kernel if there is one, else one group of equal lengths at a time."""
        edit = recording.record_attention(self, query, key, layout, keys, bias)
        if bias is None and self.score is None and edit is None:
            mixed = packed_attention(query, key, value, layout, keys, **self._kernel_options(query))
            if mixed is not None:
                return mixed
        pieces = []
        groups = (
            layout.groups if layout is keys and edit is None else length_groups(layout, keys, fillers=edit is not None)
        )
        for run in groups:
            q = run.select_queries(query).transpose(1, 2)
            k, v = run.select_keys(key).transpose(1, 2), run.select_keys(value).transpose(1, 2)
            b = None if bias is None else bias[..., : run.queries, : run.keys]
            pieces.append(self.attend_padded(q, k, v, Padded(), b, edit).transpose(1, 2).flatten(0, 1))
        if layout.num_fillers and edit is None:
            pieces.append(query.new_zeros(sum(layout.lengths[-layout.num_fillers :]), *pieces[0].shape[1:]))
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def attend_padded(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keys: Padded,
        bias: Tensor | None,
        edit: AppliedEdits | None,
    ) -> Tensor:
        """Return the weighted averages (B, H, T, D) of the values, of which there may be fewer heads."""
        if self.score is None and edit is None:
            return padded_attention(query, key, value, keys, bias, **self._kernel_options(query))
        weights = self.weights(query, key, keys, bias)
        weights = weights if edit is None else edit(weights)
        return F.dropout(weights, self.dropout, self.training).to(value.dtype) @ repeat_heads(value, self.heads)

    def _kernel_options(self, query: Tensor) -> KernelOptions:
        dropout = self.dropout if self.training else 0.0
        return {"scale": self.score_scale(query), "causal": self.causal, "window": self.window, "dropout": dropout}


class LuongDotAttention(nn.Module):
    """Luong's dot attention of a query (B, W) to values (B, S, W): context (B, W) and weights (B, S, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = luong_dot()

    def forward(self, query: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return self.cross.context(query, values)


def luong_dot() -> Attention:
    """Luong's dot score s . h, without parameters."""
    return Attention(SeparateProjections(nn.Identity(), nn.Identity(), nn.Identity()), nn.Identity(), scale=1.0)


def luong_general(width: int, memory_width: int | None = None) -> Attention:
    """Luong's general score s . W h."""
    key = nn.Linear(memory_width or width, width, bias=False)
    return Attention(SeparateProjections(nn.Identity(), key, nn.Identity()), nn.Identity(), scale=1.0)


def bahdanau(width: int, memory_width: int | None = None, *, hidden: int | None = None) -> Attention:
    """Bahdanau's additive score v . tanh(W [s ; h])."""
    hidden = hidden or width
    query, key = nn.Linear(width, hidden, bias=False), nn.Linear(memory_width or width, hidden, bias=False)
    return Attention(
        SeparateProjections(query, key, nn.Identity()), nn.Identity(), scale=1.0, score=AdditiveScore(hidden)
    )
