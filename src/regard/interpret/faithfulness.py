"""Faithfulness: may the attention map of a classified text or image be read as the reason for its class?

Six tests with fixed thresholds and one verdict; docs/faithfulness.md explains each of them. For models without classes
there is no verdict: the result has the map and the attributions of one prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PrivateAttr
from torch import Tensor

from regard.errors import InputError
from regard.inference.causal_lm import BATCH_TOKENS
from regard.interpret.ablation import output_distance
from regard.interpret.attribution.attributions import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.image_probe import ImageProbe
from regard.interpret.attribution.probe import Probe, ProbedModel
from regard.interpret.faithfulness_checks import (
    PERMUTED,
    FaithfulnessCheck,
    Verdict,
    explain_verdict,
    meanings,
)
from regard.models.family import can
from regard.nn.recording import Site, check_head, check_layer, record
from regard.render.page_arrays import data_uri
from regard.render.result import Result, Table, round_floats
from regard.render.terminal import SHADES, padded
from regard.tasks.metrics import value_scores
from regard.tasks.registry import TASKS

# Fixed before any model was measured, with reasons in docs/faithfulness.md. Do not tune them to a result.
REQUIRED_PASSES = 4  # tests of six, the permuted map among them
MIN_WORDS = 5  # with fewer, chance decides
MIN_CHANGE = 0.10  # of probability: what counts as a change of the prediction
MIN_KENDALL = 0.20  # Kendall's tau: three of five pairs of words in the same order
MIN_CORRELATION_MARGIN = 0.50  # by how much a correlation with the shown class must exceed that with the other class
DRAWS = 100  # permutations, random choices and random rankings
TOP_FRACTION = 0.2  # of the words: those that the map points at
FRACTIONS = (0.1, 0.2, 0.5)  # of the words, over which removals are averaged
FLAT = 0.01  # weights whose range is below this fraction of their mean point at nothing
Change = Callable[[Tensor, slice], Tensor]  # maps (B, H, T, T) of some copies, and which copies -> the new maps

BAR = 20


class FaithfulnessResult(Result):
    """The attention map and the attributions of one prediction and, for a classifier, the verdict on the map.

    faithful: the prediction depends on the map, and on the words it points at. doubtful: it depends on the map, but too
    few tests support the words. unfaithful: it stays the same wherever the map points. A map is `flagged` if it should
    not be shown as a reason.

    `label` has `probability`, which is the value itself for a regression; `other` is the strongest other label. A map
    is the same for both; `integrated` and `integrated_other` are the attributions of either. For an image, `image` is
    what the model reads, as a data URI, and `grid` the rows and columns of its patches.
    `weights` is the attention of the token at position `token`, `special_weight` the part on special tokens. A faithful
    map passes `required_passes` tests, `decisive` among them.
    """

    page_view: ClassVar[str | None] = "faithfulness"

    model: ProbedModel
    texts: tuple[str, ...]
    verdict: Verdict | None
    means: str | None
    flagged: bool | None
    label: str
    requested_label: str | None
    probability: float
    other: str | None
    target: str
    token: int
    layer: int
    head: int | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    weights: tuple[float, ...]
    special_weight: float
    checks: tuple[FaithfulnessCheck, ...]
    gradient: Attribution
    integrated: Attribution
    integrated_other: Attribution | None
    image: str | None
    grid: tuple[int, int] | None
    seed: int
    notes: list[str]
    required_passes: int = REQUIRED_PASSES
    decisive: str = PERMUTED
    _texts: tuple[str, ...] = PrivateAttr(())  # the tokens as people read them
    _label_text: str = PrivateAttr("")

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        heads = "mean of all heads" if self.head is None else f"head {self.head}"
        form = "z.3f" if self.model.problem_type == "regression" else ".1%"
        yield f"{self.label} {self.probability:{form}}; the map of layer {self.layer}, {heads}"
        yield ""
        yield from self._token_lines() if self.grid is None else self._patch_lines(*self.grid)
        if self.verdict is None:
            return
        yield ""
        yield from (check.line() for check in self.checks)
        passed = sum(check.passed for check in self.checks)
        yield ""
        yield f"verdict: {self.verdict} ({passed} of {len(self.checks)} passed): {self.means}"

    def _token_lines(self) -> Iterator[str]:
        heading, *tokens = padded(["", *self.tokens])
        yield f"  {heading}  weight  gradient x input  integrated gradients"
        rows = zip(tokens, self.weights, self.gradient.scores, self.integrated.scores, strict=True)
        for token, weight, gradient, integrated in rows:
            bar = "█" * round(weight * BAR)
            yield f"  {token}  {weight:6.3f}  {gradient:z16.3f}  {integrated:z20.3f}  {bar}".rstrip()

    def _patch_lines(self, rows: int, columns: int) -> Iterator[str]:
        """The map and the attributions of two classes as small pictures, side by side; a minus is evidence against."""
        pictures = {"attention": self.weights, f"integrated gradients, {self.label}": self.integrated.scores}
        if self.integrated_other is not None:
            pictures[f"integrated gradients, {self.other}"] = self.integrated_other.scores
        width = max(2 * columns, *map(len, pictures)) + 2
        special = len(self.weights) - rows * columns
        yield "  " + "".join(f"{title:{width}}" for title in pictures).rstrip()
        for row in range(rows):
            cells = slice(special + row * columns, special + (row + 1) * columns)
            yield (
                "  "
                + "".join(
                    f"{''.join(_shade(value, max(map(abs, values[special:]))) for value in values[cells]):{width}}"
                    for values in pictures.values()
                ).rstrip()
            )

    def to_table(self) -> Table:
        rows = zip(self.tokens, self.weights, self.gradient.scores, self.integrated.scores, strict=True)
        return ("token", "weight", "gradient x input", "integrated gradients"), [list(row) for row in rows]

    def view_data(self) -> dict[str, object]:
        """The page shows tokens as text."""
        return {**round_floats(self.to_dict()), "label": self._label_text, "tokens": list(self._texts)}


def _shade(value: float, largest: float) -> str:
    """A patch in the terminal, two characters wide."""
    level = round(abs(value) / largest * (len(SHADES) - 1)) if largest else 0
    return ("-" if value < 0 and level else SHADES[level]) * 2


def no_verdict_reason(task: str) -> str:
    """Why a model for this task gets no verdict."""
    what = {"fill": "fills in blanks", "next": "continues texts"}.get(task, f"does {task}")
    return (
        f"This model {what} and has no classes, so there is no verdict: the tests judge models that "
        "`regard train classify` and `pair` write."
    )


def measure_faithfulness(
    probe: Probe, *, label: str | None = None, layer: int | None = None, head: int | None = None, seed: int = 0
) -> FaithfulnessResult:
    """Test the map of a layer (default: the last) and a head (the mean of all) as a reason for a label (the predicted).

    Models that are not classifiers get the map and the attributions of their first target, without a verdict.
    """
    task = TASKS.get(probe.task)
    if task is not None and not task.pooled:
        raise InputError(
            f"a model for {probe.task} makes many predictions for one text; `regard predict DIR INPUT --page FILE` "
            "shows the evidence for each of them"
        )
    classifies = task is not None and task.is_classification and len(probe.outputs) > 1
    index = None if label is None else probe.output_index(label)
    with probe.evaluation_mode():
        attention = attention_map(probe, layer=layer, head=head)
        if classifies and len(attention.words) < MIN_WORDS:
            what = "image" if isinstance(probe, ImageProbe) else "text"
            raise InputError(
                f"the {what} has {len(attention.words)} tokens that are not special; the tests need {MIN_WORDS} or more"
            )
        logits = probe.logits()[:, 0]
        ranked = probe.probabilities(logits)[0].argsort(descending=True).tolist()
        index = ranked[0] if index is None else index
        other = next((number for number in ranked if number != index), index)
    name = probe.outputs[index]
    gradient = gradient_times_input(probe, output=name)
    checks: tuple[FaithfulnessCheck, ...] = ()
    if classifies:
        with probe.evaluation_mode():
            generator = torch.Generator().manual_seed(seed)
            checks = _FaithfulnessTests(attention, logits, index, other, generator).run(gradient)
    verdict = _verdict(checks) if classifies else None
    image = probe if isinstance(probe, ImageProbe) else None
    result = FaithfulnessResult(
        model=probe.describe(),
        texts=probe.texts,
        verdict=verdict,
        means=None if verdict is None else explain_verdict(verdict, image=image is not None),
        flagged=None if verdict is None else verdict != "faithful",
        label=name,
        requested_label=label,
        probability=probe.probabilities(logits)[0, index].item(),
        other=probe.outputs[other] if classifies else None,
        target=probe.targets[0],
        token=attention.position,
        layer=attention.layer,
        head=attention.head,
        tokens=probe.tokens,
        special=probe.special,
        weights=tuple(attention.weights.tolist()),
        special_weight=(attention.weights.sum() - attention.weights[attention.words].sum()).item(),
        checks=checks,
        gradient=gradient,
        integrated=integrated_gradients(probe, output=name),
        integrated_other=integrated_gradients(probe, output=other) if classifies else None,
        image=None if image is None else data_uri(image.picture()),
        grid=None if image is None else image.grid,
        seed=seed,
        notes=[] if verdict is not None else [no_verdict_reason(probe.task)],
    )
    result._texts = probe.token_texts
    result._label_text = probe.output_text(name)
    return result


def _verdict(checks: tuple[FaithfulnessCheck, ...]) -> Verdict:
    passed = {check.name for check in checks if check.passed}
    if PERMUTED not in passed:
        return "unfaithful"
    return "faithful" if len(passed) >= REQUIRED_PASSES else "doubtful"


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The map of `layer` and `head` (None for the mean of all heads).

    `weights` (T,) is how much the token at `position` attends to each token, `words` the positions of the tokens that
    are not special.
    """

    probe: Probe
    layer: int
    head: int | None
    position: int
    weights: Tensor
    words: Tensor

    def permute(self, draws: int, generator: torch.Generator) -> Tensor:
        """Logits (B, O) with randomly permuted maps: weights move among the tokens that may be attended to."""
        count = len(self.weights)
        keys = torch.rand(draws, count, generator=generator).to(self.weights.device)
        hidden = ~self._allowed()

        def change(maps: Tensor, copies: slice) -> Tensor:
            order = keys[copies, None, :].expand(-1, count, -1).masked_fill(hidden, torch.inf).argsort(-1)
            return maps.gather(-1, order[:, None].expand(maps.shape))

        return self._edited(change, draws)

    def flatten(self) -> Tensor:
        """Logits (1, O) with equal weights on all tokens that may be attended to."""
        allowed = self._allowed()
        return self._edited(lambda maps, _: (allowed / allowed.sum(-1, keepdim=True)).to(maps.dtype).expand_as(maps), 1)

    def zero_values(self, positions: Tensor) -> Tensor:
        """Logits (B, O) with the values of the tokens at `positions` (B, K) set to zero for these maps.

        A weight times a value of zero is zero, so the weights are set to zero instead.
        """
        keep = ~self._marked(positions)
        return self._edited(lambda maps, copies: maps * keep[copies, None, None].to(maps.dtype), len(positions))

    def remove(self, positions: Tensor) -> Tensor:
        """Logits (B, O) of the text without the tokens at `positions` (B, K)."""
        return self._subsets(~self._marked(positions))

    def keep_only(self, positions: Tensor) -> Tensor:
        """Logits (B, O) of the words at `positions` (B, K) alone, with the special tokens around them."""
        words = torch.zeros(len(self.weights), dtype=torch.bool, device=positions.device)
        words[self.words] = True
        return self._subsets(self._marked(positions) | ~words)

    def _marked(self, positions: Tensor) -> Tensor:
        marks = torch.zeros(len(positions), len(self.weights), dtype=torch.bool, device=positions.device)
        return marks.scatter_(1, positions, True)

    def _allowed(self) -> Tensor:
        count = len(self.weights)
        every = torch.ones(count, count, dtype=torch.bool, device=self.weights.device)
        return every.tril() if can(self.probe.encoder, "causal-lm") else every

    def _subsets(self, keep: Tensor) -> Tensor:
        return torch.cat([self.probe.logits_of_subsets(part)[:, 0] for part in torch.split(keep, self._batch_size())])

    def _edited(self, change: Change, copies: int) -> Tensor:
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)

        def edit(weights: Tensor, site: Site, *, part: slice) -> Tensor:
            if site.layer != self.layer:
                return weights
            changed = weights.clone()
            changed[:, heads] = change(weights[:, heads], part)
            return changed

        logits = []
        for start in range(0, copies, self._batch_size()):
            part = slice(start, min(start + self._batch_size(), copies))
            with record(self.probe.encoder, edit=partial(edit, part=part)):
                logits.append(self.probe.logits(self.probe.ids.expand(part.stop - part.start, -1))[:, 0])
        return torch.cat(logits)

    def _batch_size(self) -> int:
        return max(1, BATCH_TOKENS[self.weights.device.type] // len(self.weights))


def attention_map(probe: Probe, *, layer: int | None = None, head: int | None = None) -> AttentionMap:
    """The map of a layer from 1 (default: the last) and a head from 0 (default: the mean of all); -1 is the last layer.

    It is the row of the token whose state the model reads: the first blank, or the token that stands for the text.
    """
    layer = check_layer(-1 if layer is None else layer, probe.num_layers)
    if head is not None:
        check_head(head, probe.num_heads)
    maps = torch.from_numpy(probe.attention()[layer - 1]).to(probe.ids.device).double()
    position = probe.position_of(0, 0)
    weights = maps[:, position].mean(0) if head is None else maps[head, position]
    words = [position for position, special in enumerate(probe.special) if not special]
    return AttentionMap(probe, layer, head, position, weights, torch.tensor(words, device=weights.device))


@dataclass(frozen=True, eq=False)
class _FaithfulnessTests:
    """The six tests of one map; `logits` (1, O) are the prediction for the whole text."""

    attention: AttentionMap
    logits: Tensor
    label: int
    other: int
    generator: torch.Generator

    def run(self, gradient: Attribution) -> tuple[FaithfulnessCheck, ...]:
        checks = (
            self._class_swap(),
            self._permuted(),
            self._zeroed_values(),
            self._gradient_correlation(gradient),
            *self._removals(),
        )
        weights = self.attention.weights[self.attention.words]
        if weights.max() - weights.min() <= FLAT * weights.mean():
            checks = tuple(one if one.name == PERMUTED else replace(one, value=None, passed=False) for one in checks)
        probe = self.attention.probe
        by_name = meanings(
            len(probe.outputs),
            several=probe.problem_type == "multi_label_classification",
            image=isinstance(probe, ImageProbe),
        )
        return tuple(
            replace(one, method=meaning.method, means=meaning.passed if one.passed else meaning.failed)
            for one in checks
            for meaning in [by_name[one.name]]
        )

    def _class_swap(self) -> FaithfulnessCheck:
        """Words are removed one by one: do the label's log-odds follow the map better than the other label's?"""
        odds = self._log_odds(self.logits) - self._log_odds(self.attention.remove(self.attention.words[:, None]))
        weights = self.attention.weights[self.attention.words].tolist()
        own, other = (value_scores(weights, odds[:, n].tolist())["pearson"] / 100 for n in (self.label, self.other))
        return FaithfulnessCheck.of("class swap", own - other, MIN_CORRELATION_MARGIN, label=own, other=other)

    def _permuted(self) -> FaithfulnessCheck:
        changes = self._change(self.attention.permute(DRAWS, self.generator))
        median, uniform = changes.median().item(), self._change(self.attention.flatten()).item()
        numbers = {"median": median, "largest": changes.max().item(), "uniform": uniform}
        return FaithfulnessCheck.of(PERMUTED, median, MIN_CHANGE, **numbers)

    def _zeroed_values(self) -> FaithfulnessCheck:
        """The words that the map points at, against as many of the others."""
        order = self._order()
        count = _count(TOP_FRACTION, len(order))
        others = order[count:][self._rankings(len(order) - count)[:, :count]]
        top = self._change(self.attention.zero_values(order[None, :count])).item()
        random = self._change(self.attention.zero_values(others)).mean().item()
        return FaithfulnessCheck.of("zeroed values", top - random, MIN_CHANGE, pointed=top, others=random)

    def _gradient_correlation(self, gradient: Attribution) -> FaithfulnessCheck:
        weights = self.attention.weights[self.attention.words].cpu().numpy()
        sizes = np.abs([gradient.scores[position] for position in self.attention.words.tolist()])
        tau = kendall_tau_b(weights, sizes)
        spearman = value_scores(weights.tolist(), sizes.tolist())["spearman"] / 100
        return FaithfulnessCheck.of("correlation with gradients", tau, MIN_KENDALL, kendall=tau, spearman=spearman)

    def _removals(self) -> list[FaithfulnessCheck]:
        """Comprehensiveness and sufficiency of the map's ranking, compared with those of random rankings."""
        rankings = torch.cat([self._order()[None], self.attention.words[self._rankings(len(self.attention.words))]])
        whole = self._probability(self.logits)
        drops, losses = [], []
        for fraction in FRACTIONS:
            positions = rankings[:, : _count(fraction, rankings.shape[1])]
            drops.append(whole - self._probability(self.attention.remove(positions)))
            losses.append(whole - self._probability(self.attention.keep_only(positions)))
        checks = []
        for name, parts, sign in (("comprehensiveness", drops, 1), ("sufficiency", losses, -1)):
            mean = torch.stack(parts).mean(0)
            own, random = mean[0].item(), mean[1:].mean().item()
            numbers = {name: own, "random": random}
            checks.append(FaithfulnessCheck.of(name, sign * (own - random), MIN_CHANGE, **numbers))
        return checks

    def _order(self) -> Tensor:
        """The positions of the words, the highest weight first."""
        return self.attention.words[self.attention.weights[self.attention.words].argsort(descending=True, stable=True)]

    def _rankings(self, count: int) -> Tensor:
        """(DRAWS, count): random orders of the indices below `count`."""
        return torch.rand(DRAWS, count, generator=self.generator).argsort(-1).to(self.attention.words.device)

    def _change(self, logits: Tensor) -> Tensor:
        return output_distance(self.attention.probe, self.logits, logits)

    def _probability(self, logits: Tensor) -> Tensor:
        return self.attention.probe.probabilities(logits)[:, self.label]

    def _log_odds(self, logits: Tensor) -> Tensor:
        """The log-odds of each label against all others; for multi-label outputs these are the logits."""
        logits = logits.double()
        if self.attention.probe.problem_type == "multi_label_classification":
            return logits
        same = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        rest = logits[:, None, :].expand(-1, len(same), -1).masked_fill(same, -torch.inf)
        return logits - rest.logsumexp(-1)


def _count(fraction: float, total: int) -> int:
    return max(1, round(fraction * total))


def kendall_tau_b(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Kendall's tau-b: the concordant minus the discordant pairs, normalized; 0 if one variable is constant."""
    a, b = (np.sign(values[:, None] - values[None, :]) for values in (x, y))
    norm = float(np.sqrt(np.abs(a).sum() * np.abs(b).sum()))
    return float((a * b).sum() / norm) if norm else 0.0
