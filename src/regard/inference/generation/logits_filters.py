"""Logits filters: pure functions from logits (B, V) to logits in which excluded tokens are -inf.

Each filter works on the distribution that the previous ones left. Logits are float64, so that sums of many small
probabilities stay accurate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """Sampling settings; the defaults sample from the model's own distribution. Filters apply in the order of fields.

    A `repetition_penalty` above 1 makes tokens that already occurred less likely. `temperature` 0 is greedy. `top_k`
    keeps the k likeliest tokens, `top_p` the smallest set of likeliest tokens whose probability reaches p, `min_p`
    tokens with at least that fraction of the highest probability.
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise InputError(
                f"repetition_penalty is {self.repetition_penalty}; expected a number above 0, such as 1 (none) or 1.2"
            )
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature is {self.temperature}; expected a number from 0 (greedy), mostly 0.5 to 1.5")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top-k is {self.top_k}; expected a number of tokens, at least 1")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top-p is {self.top_p}; expected a probability above 0 and at most 1, which keeps all")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"min-p is {self.min_p}; expected 0, which keeps all, to 1")

    def stages(self, logits: Tensor, used: Tensor | None = None) -> Iterator[tuple[str, Tensor]]:
        """The logits after each active filter, with its name. `used` (B, V) is True for tokens that occurred."""
        filtered = logits.double()
        if self.repetition_penalty != 1 and used is not None:
            filtered = repetition_penalty(filtered, used, self.repetition_penalty)
            yield "repetition", filtered
        if self.temperature != 1:
            filtered = temperature(filtered, self.temperature)
            yield "temperature", filtered
        if self.top_k is not None:
            filtered = top_k(filtered, self.top_k)
            yield "top_k", filtered
        if self.top_p < 1:
            filtered = top_p(filtered, self.top_p)
            yield "top_p", filtered
        if self.min_p > 0:
            filtered = min_p(filtered, self.min_p)
            yield "min_p", filtered

    def filtered(self, logits: Tensor, used: Tensor | None = None) -> Tensor:
        """The logits after all filters, float64."""
        return [logits.double(), *(filtered for _, filtered in self.stages(logits, used))][-1]


def repetition_penalty(logits: Tensor, used: Tensor, penalty: float) -> Tensor:
    """CTRL's penalty on used tokens: positive logits are divided by it, negative ones multiplied."""
    filtered = logits.double()
    return torch.where(used, torch.where(filtered > 0, filtered / penalty, filtered * penalty), filtered)


def temperature(logits: Tensor, value: float) -> Tensor:
    """Divide by the temperature; at 0 only the likeliest token remains, the lowest id of equals."""
    if value == 0:
        return top_k(logits, 1)
    # The largest logit becomes 0 first, so that low temperatures do not overflow.
    filtered = logits.double()
    return (filtered - filtered.amax(-1, keepdim=True)) / value


def top_k(logits: Tensor, count: int) -> Tensor:
    """Keep exactly the `count` likeliest tokens, of equals those with the lowest ids."""
    filtered = logits.double()
    if count >= filtered.shape[-1]:
        return filtered
    last = filtered.topk(count).values[..., -1:]
    above = filtered > last
    equal = filtered == last
    room = count - above.sum(-1, keepdim=True)
    return _only(filtered, above | equal & (equal.cumsum(-1) <= room))


def top_p(logits: Tensor, probability: float) -> Tensor:
    """Keep the smallest set of likeliest tokens that reaches `probability`; of equals those with the lowest ids."""
    filtered = logits.double()
    if probability >= 1:
        return filtered
    ordered, order = filtered.sort(dim=-1, descending=True, stable=True)
    reached = ordered.softmax(-1).cumsum(-1)
    keep = torch.ones_like(reached, dtype=torch.bool)
    keep[..., 1:] = (
        reached[..., :-1] < probability
    )  # a token is needed while those before it do not reach the probability
    return _only(filtered, torch.zeros_like(keep).scatter(-1, order, keep))


def min_p(logits: Tensor, probability: float) -> Tensor:
    """Keep tokens that are at least `probability` times as likely as the likeliest."""
    filtered = logits.double()
    if probability <= 0:
        return filtered
    return _only(filtered, filtered >= filtered.amax(-1, keepdim=True) + math.log(probability))


def _only(filtered: Tensor, keep: Tensor) -> Tensor:
    return filtered.masked_fill(~keep, -math.inf)
