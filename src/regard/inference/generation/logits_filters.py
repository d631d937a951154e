"""What may be said next: pure functions from logits (B, V) to logits in which what may not be said is -inf.

Each looks at what the ones before it left over, shares taken of that. The numbers are float64, so that sums of many
small shares keep their meaning. Knows nothing of models, random numbers or texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError

__all__ = ["Sampling", "min_p", "repetition_penalty", "temperature", "top_k", "top_p"]


@dataclass(frozen=True)
class Sampling:
    """How chance chooses; the defaults leave the model's own distribution. Filters apply in the order of the fields.

    `repetition` above 1 makes what was said already less likely. `temperature` 0 is greedy. `top_k` leaves the k
    likeliest, `top_p` the fewest likeliest whose share reaches p, `min_p` those at least that share of the likeliest.
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
            raise InputError(f"top-k is {self.top_k}; expected how many tokens may be said, at least 1")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top-p is {self.top_p}; expected a share above 0 and up to 1, which leaves all")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"min-p is {self.min_p}; expected a share from 0, which leaves all, to 1")

    def stages(self, logits: Tensor, said: Tensor | None = None) -> Iterator[tuple[str, Tensor]]:
        """The logits after each filter that does something, by its name. `said` (B, V): True where a token was said."""
        numbers = logits.double()
        if self.repetition_penalty != 1 and said is not None:
            numbers = repetition_penalty(numbers, said, self.repetition_penalty)
            yield "repetition", numbers
        if self.temperature != 1:
            numbers = temperature(numbers, self.temperature)
            yield "temperature", numbers
        if self.top_k is not None:
            numbers = top_k(numbers, self.top_k)
            yield "top_k", numbers
        if self.top_p < 1:
            numbers = top_p(numbers, self.top_p)
            yield "top_p", numbers
        if self.min_p > 0:
            numbers = min_p(numbers, self.min_p)
            yield "min_p", numbers

    def filtered(self, logits: Tensor, said: Tensor | None = None) -> Tensor:
        """The logits after all filters, float64."""
        return [logits.double(), *(numbers for _, numbers in self.stages(logits, said))][-1]


def repetition_penalty(logits: Tensor, said: Tensor, penalty: float) -> Tensor:
    """CTRL's penalty on what was said, however often: logits above 0 are divided by it, those below multiplied."""
    numbers = logits.double()
    return torch.where(said, torch.where(numbers > 0, numbers / penalty, numbers * penalty), numbers)


def temperature(logits: Tensor, value: float) -> Tensor:
    """Divide by the temperature; at 0 the likeliest token alone is left, of several the one with the lowest id."""
    if value == 0:
        return top_k(logits, 1)
    # The largest becomes 0 first, so that no temperature, however low, leaves the range of a float.
    numbers = logits.double()
    return (numbers - numbers.amax(-1, keepdim=True)) / value


def top_k(logits: Tensor, count: int) -> Tensor:
    """Exactly the `count` likeliest; of equals those with the lowest ids."""
    numbers = logits.double()
    if count >= numbers.shape[-1]:
        return numbers
    last = numbers.topk(count).values[..., -1:]
    above = numbers > last
    equal = numbers == last
    room = count - above.sum(-1, keepdim=True)
    return _only(numbers, above | equal & (equal.cumsum(-1) <= room))


def top_p(logits: Tensor, share: float) -> Tensor:
    """The smallest set of the likeliest whose share reaches `share`, at least one; of equals those with lower ids."""
    numbers = logits.double()
    if share >= 1:
        return numbers
    ordered, order = numbers.sort(dim=-1, descending=True, stable=True)
    reached = ordered.softmax(-1).cumsum(-1)
    kept = torch.ones_like(reached, dtype=torch.bool)
    kept[..., 1:] = reached[..., :-1] < share  # a token is needed while those before it do not reach the share
    return _only(numbers, torch.zeros_like(kept).scatter(-1, order, kept))


def min_p(logits: Tensor, share: float) -> Tensor:
    """What is at least `share` times as likely as the likeliest."""
    numbers = logits.double()
    if share <= 0:
        return numbers
    return _only(numbers, numbers >= numbers.amax(-1, keepdim=True) + math.log(share))


def _only(numbers: Tensor, kept: Tensor) -> Tensor:
    return numbers.masked_fill(~kept, -math.inf)
