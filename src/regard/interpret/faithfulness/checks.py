"""The six tests of the honesty meter, each a number and a fixed threshold. docs/honesty.md says what they mean and why.

Knows one shown map and the answer to its text. Gives no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.interpret.ablation.ablation import output_distance
from regard.interpret.attribution.attention_map import AttentionMap
from regard.interpret.attribution.gradients import Attribution
from regard.tasks.metrics import value_scores

__all__ = [
    "MIN_CHANGE",
    "MIN_CORRELATION_MARGIN",
    "MIN_KENDALL",
    "PERMUTED",
    "FaithfulnessCheck",
    "FaithfulnessChecks",
    "kendall_tau_b",
]

# Fixed before any model was measured, with reasons in docs/honesty.md. Do not tune them to a result.
MIN_CHANGE = 0.10  # of probability: what counts as a change of the answer
MIN_KENDALL = 0.20  # Kendall's tau: three of five pairs of words in the same order
MIN_CORRELATION_MARGIN = 0.50  # by how much a correlation with the shown class must beat that with the other class

DRAWS = 100  # shuffles, random choices and random rankings
POINTED = 0.2  # of the words: those that the map points at
SHARES = (0.1, 0.2, 0.5)  # of the words, over which removals are averaged
FLAT = 0.01  # weights whose range is below this part of their mean point at nothing

PERMUTED = "permuted attention"  # the name of the test without which there is no honest map


@dataclass(frozen=True)
class FaithfulnessCheck:
    """One test: passed where `value` is at least `threshold`. None where the map points at nothing: not passed."""

    name: str
    value: float | None
    threshold: float
    numbers: dict[str, float | None]

    @property
    def passed(self) -> bool:
        return self.value is not None and self.value >= self.threshold


@dataclass(frozen=True, eq=False)
class FaithfulnessChecks:
    """The six tests of one map; `logits` (1, O) are the answer to the whole text."""

    shown: AttentionMap
    logits: Tensor
    label: int
    other: int
    generator: torch.Generator

    def checks(self, gradient: Attribution) -> tuple[FaithfulnessCheck, ...]:
        flat = self._flat()
        return (
            self._class_swap(flat),
            self._permuted(),
            self._zeroed(flat),
            self._gradients(flat, gradient),
            *self._removals(flat),
        )

    def _flat(self) -> bool:
        weights = self.shown.weights[self.shown.words]
        return bool(weights.max() - weights.min() <= FLAT * weights.mean())

    def _class_swap(self, flat: bool) -> FaithfulnessCheck:
        """Words are taken out one by one: do the label's log-odds follow the map better than the other label's?"""
        odds = self._odds(self.logits) - self._odds(self.shown.remove(self.shown.words[:, None]))
        weights = self.shown.weights[self.shown.words].tolist()
        own, other = (value_scores(weights, odds[:, n].tolist())["pearson"] / 100 for n in (self.label, self.other))
        numbers: dict[str, float | None] = {"label": own, "other": other}
        return FaithfulnessCheck("class swap", None if flat else own - other, MIN_CORRELATION_MARGIN, numbers)

    def _permuted(self) -> FaithfulnessCheck:
        moved = self._moved(self.shown.permute(DRAWS, self.generator))
        numbers: dict[str, float | None] = {
            "median": moved.median().item(),
            "largest": moved.max().item(),
            "uniform": self._moved(self.shown.flatten()).item(),
        }
        return FaithfulnessCheck(PERMUTED, numbers["median"], MIN_CHANGE, numbers)

    def _zeroed(self, flat: bool) -> FaithfulnessCheck:
        """The words that the map points at, against as many of the others."""
        order = self._order()
        count = _part(POINTED, len(order))
        others = order[count:][self._rankings(len(order) - count)[:, :count]]
        top = self._moved(self.shown.zero_values(order[None, :count])).item()
        random = self._moved(self.shown.zero_values(others)).mean().item()
        return FaithfulnessCheck(
            "zeroed values", None if flat else top - random, MIN_CHANGE, {"pointed": top, "others": random}
        )

    def _gradients(self, flat: bool, gradient: Attribution) -> FaithfulnessCheck:
        places = self.shown.words.tolist()
        weights = self.shown.weights[self.shown.words].cpu().numpy()
        sizes = np.abs([gradient.scores[place] for place in places])
        numbers: dict[str, float | None] = {
            "kendall": kendall_tau_b(weights, sizes),
            "spearman": value_scores(weights.tolist(), sizes.tolist())["spearman"] / 100,
        }
        return FaithfulnessCheck(
            "correlation with gradients", None if flat else numbers["kendall"], MIN_KENDALL, numbers
        )

    def _removals(self, flat: bool) -> tuple[FaithfulnessCheck, FaithfulnessCheck]:
        """Comprehensiveness and sufficiency of the map's ranking, and how far they are from random rankings'."""
        rankings = torch.cat([self._order()[None], self.shown.words[self._rankings(len(self.shown.words))]])
        whole = self._probability(self.logits)
        drops, losses = [], []
        for share in SHARES:
            places = rankings[:, : _part(share, rankings.shape[1])]
            drops.append(whole - self._probability(self.shown.remove(places)))
            losses.append(whole - self._probability(self.shown.keep_only(places)))
        found = []
        for name, parts, sign in (("comprehensiveness", drops, 1), ("sufficiency", losses, -1)):
            mean = torch.stack(parts).mean(0)
            own, random = mean[0].item(), mean[1:].mean().item()
            value = None if flat else sign * (own - random)
            found.append(FaithfulnessCheck(name, value, MIN_CHANGE, {name: own, "random": random}))
        return found[0], found[1]

    def _order(self) -> Tensor:
        """The places of the words, the highest weight first."""
        return self.shown.words[self.shown.weights[self.shown.words].argsort(descending=True, stable=True)]

    def _rankings(self, count: int) -> Tensor:
        """(DRAWS, count): each a random order of the numbers below `count`."""
        return torch.rand(DRAWS, count, generator=self.generator).argsort(-1).to(self.shown.words.device)

    def _moved(self, logits: Tensor) -> Tensor:
        return output_distance(self.shown.probe, self.logits, logits)

    def _probability(self, logits: Tensor) -> Tensor:
        return self.shown.probe.probabilities(logits)[:, self.label]

    def _odds(self, logits: Tensor) -> Tensor:
        """The log-odds of each label against all others, which is the logit where labels exclude nothing."""
        logits = logits.double()
        if self.shown.probe.kind == "several":
            return logits
        same = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        rest = logits[:, None, :].expand(-1, len(same), -1).masked_fill(same, -torch.inf)
        return logits - rest.logsumexp(-1)


def _part(share: float, count: int) -> int:
    return max(1, round(share * count))


def kendall_tau_b(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Kendall's tau-b: of all pairs, how many more have the same order than the opposite; 0 where one is constant."""
    a, b = (np.sign(values[:, None] - values[None, :]) for values in (x, y))
    room = float(np.sqrt(np.abs(a).sum() * np.abs(b).sum()))
    return float((a * b).sum() / room) if room else 0.0
