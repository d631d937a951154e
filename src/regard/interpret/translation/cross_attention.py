"""The cross-attention of a decoding, with the four sub-steps that lead to a context vector.

At every step the decoder (1) reads the encoder's states, (2) scores each of them, (3) takes the softmax of the scores
and multiplies each state by its weight, which amplifies some and suppresses others, and (4) sums these to the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.nn import Attention
from regard.nn.attention import SeparateProjections
from regard.nn.tape import Tape

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CrossAttention:
    """The attention of one hypothesis, for each layer L, head H and step T, over the S states.

    `scores` (L, H, T, S) are those of `query` (L, H, T, D) with each state's key, `weights` (L, H, T, S) their softmax,
    and `context` (L, H, T, E) is the sum of the weighted values.
    """

    query: Floats
    scores: Floats
    weights: Floats
    context: Floats


@dataclass(frozen=True, eq=False)
class CrossAttentionRecord:
    """The encoder's `states` (S, W), the same at every step, and the attention of each hypothesis.

    `values` (L, H, S, E) are None if the heads take the states themselves, as in recurrent models. `scale` multiplies
    the products of queries and keys.
    """

    states: Floats
    values: Floats | None
    scale: float
    hypotheses: tuple[CrossAttention, ...]


def cross_attention_of(tape: Tape, *, steps: list[int]) -> CrossAttentionRecord:
    """From the tape of a decoding of several hypotheses of one source; `steps` are their lengths."""
    sites = sorted((site for site in tape.calls if site.kind == "cross"), key=lambda site: site.layer)
    modules = [tape.calls[site][0].attention for site in sites]
    queries, weights = tape.queries("cross", "decoder"), tape.attention("cross", "decoder")
    keys, memory = tape.keys("cross", "decoder"), tape.hidden("encoder")[-1]
    scores = [_scores(*three) for three in zip(modules, queries, keys, strict=True)]
    values = [_values(module, memory) for module in modules]
    contexts = [one.to(value.dtype) @ value for one, value in zip(weights, values, strict=True)]
    hypotheses = [
        CrossAttention(
            *(_floats([layer[row, :, :count] for layer in part]) for part in (queries, scores, weights, contexts))
        )
        for row, count in enumerate(steps)
    ]
    uses_states = all(_uses_states(module) for module in modules)
    return CrossAttentionRecord(
        states=_floats([memory[0]])[0],
        values=None if uses_states else _floats([value[0] for value in values]),
        scale=modules[0].score_scale(queries[0]),
        hypotheses=tuple(hypotheses),
    )


def _scores(module: Attention, query: Tensor, key: Tensor) -> Tensor:
    scores: Tensor = query @ key.transpose(-2, -1) if module.score is None else module.score(query, key)
    return scores * module.score_scale(query)


def _values(module: Attention, memory: Tensor) -> Tensor:
    """(B, H, S, E)."""
    assert isinstance(module.project, SeparateProjections)
    value: Tensor = module.project.value(memory)
    return value.view(*value.shape[:-1], module.heads, -1).transpose(1, 2)


def _uses_states(module: Attention) -> bool:
    return isinstance(module.project, SeparateProjections) and isinstance(module.project.value, torch.nn.Identity)


def _floats(layers: list[Tensor]) -> Floats:
    array: Floats = torch.stack(layers).float().cpu().numpy()
    return array
