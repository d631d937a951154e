"""The encoder-decoder attention of a decoding, with all that leads to a context vector: the deck's four sub-steps.

At every step the decoder (1) looks at the encoder's states, (2) scores each of them, (3) takes the softmax of the
scores and multiplies each state by its weight, which amplifies some and drowns out others, and (4) sums these to the
context.
Knows what was recorded and its tensors. Knows no text.
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

__all__ = ["CrossAttention", "CrossAttentionRecord", "Floats", "cross_attention_of"]

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CrossAttention:
    """One hypothesis: a look for each layer L, head H and step T at the S states.

    `query` (L, H, T, D) is what the states are scored with, `scores` (L, H, T, S) are what the softmax is taken of,
    `weights` (L, H, T, S) their softmax, and `context` (L, H, T, E) the sum of the weighted values.
    """

    query: Floats
    scores: Floats
    weights: Floats
    context: Floats


@dataclass(frozen=True, eq=False)
class CrossAttentionRecord:
    """What is looked at, the same at every step.

    `states` (S, W) are the encoder's; `values` (L, H, S, E) what a head takes of them, None where it takes the states
    themselves, as recurrent models do. `scale` is what products of queries and keys are multiplied by.
    """

    states: Floats
    values: Floats | None
    scale: float
    looks: tuple[CrossAttention, ...]


def cross_attention_of(tape: Tape, *, steps: list[int]) -> CrossAttentionRecord:
    """From the tape of one decoding of several hypotheses of one source; `steps` is how many each of them has."""
    sites = sorted((site for site in tape.calls if site.kind == "cross"), key=lambda site: site.layer)
    modules = [tape.calls[site][0].attention for site in sites]
    queries, weights = tape.queries("cross", "decoder"), tape.attention("cross", "decoder")
    keys, memory = tape.keys("cross", "decoder"), tape.hidden("encoder")[-1]
    scores = [_scores(*three) for three in zip(modules, queries, keys, strict=True)]
    values = [_values(module, memory) for module in modules]
    contexts = [one.to(value.dtype) @ value for one, value in zip(weights, values, strict=True)]
    looks = [
        CrossAttention(
            *(_floats([layer[row, :, :count] for layer in part]) for part in (queries, scores, weights, contexts))
        )
        for row, count in enumerate(steps)
    ]
    plain = all(_takes_states(module) for module in modules)
    return CrossAttentionRecord(
        states=_floats([memory[0]])[0],
        values=None if plain else _floats([value[0] for value in values]),
        scale=modules[0].score_scale(queries[0]),
        looks=tuple(looks),
    )


def _scores(module: Attention, query: Tensor, key: Tensor) -> Tensor:
    found: Tensor = query @ key.transpose(-2, -1) if module.score is None else module.score(query, key)
    return found * module.score_scale(query)


def _values(module: Attention, memory: Tensor) -> Tensor:
    """(B, H, S, E)."""
    assert isinstance(module.project, SeparateProjections)
    value: Tensor = module.project.value(memory)
    return value.view(*value.shape[:-1], module.heads, -1).transpose(1, 2)


def _takes_states(module: Attention) -> bool:
    return isinstance(module.project, SeparateProjections) and isinstance(module.project.value, torch.nn.Identity)


def _floats(layers: list[Tensor]) -> Floats:
    found: Floats = torch.stack(layers).float().cpu().numpy()
    return found
