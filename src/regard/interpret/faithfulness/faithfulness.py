"""The honesty meter: may the attention map that is shown of a classified text be read as the reason for its class?

Six tests with fixed thresholds and one verdict; docs/honesty.md says what each means and why the thresholds are what
they are. Knows classifiers and one shown map of theirs. Knows nothing of pages or the command line.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import torch

from regard.errors import InputError
from regard.interpret.attribution.attention_map import attention_map
from regard.interpret.attribution.gradients import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe
from regard.interpret.faithfulness.checks import PERMUTED, FaithfulnessCheck, FaithfulnessChecks

__all__ = ["MIN_WORDS", "REQUIRED_PASSES", "Faithfulness", "Verdict", "measure_faithfulness"]

# Fixed before any model was measured, with reasons in docs/honesty.md. Do not tune them to a result.
REQUIRED_PASSES = 4  # tests of six, the shuffled map among them
MIN_WORDS = 5  # words; with fewer, chance decides

Verdict = Literal["honest", "doubtful", "decoration"]


@dataclass(frozen=True)
class Faithfulness:
    """The verdict on one map for one text. honest: the answer depends on the map, and what it points at on the answer.

    doubtful: the answer depends on it, but too little speaks for what it points at. decoration: the answer stays as it
    is wherever the map looks. The scores of both attributions are for `label`, of `probability`.
    """

    verdict: Verdict
    label: str
    probability: float
    other: str
    layer: int
    head: int | None
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    special_weight: float
    checks: tuple[FaithfulnessCheck, ...]
    gradient: Attribution
    integrated: Attribution
    seed: int

    @property
    def flagged(self) -> bool:
        """Whether the map should not be shown as a reason."""
        return self.verdict != "honest"

    def document(self) -> dict[str, object]:
        checks = [asdict(check) | {"passed": check.passed} for check in self.checks]
        return {**asdict(self), "flagged": self.flagged, "checks": checks}


def measure_faithfulness(
    trial: Probe, *, label: str | None = None, layer: int | None = None, head: int | None = None, seed: int = 0
) -> Faithfulness:
    """Judge the map of a layer (the last) and a head (the mean of all) as a reason for a label (the predicted one)."""
    if trial.task not in ("classify", "pair") or len(trial.outputs) < 2:
        raise InputError(
            "the honesty meter judges what `regard train classify` and `pair` write, with two labels or more; this "
            f"model does {trial.task} with {len(trial.outputs)}"
        )
    chosen = None if label is None else trial.output_index(label)
    with trial.evaluating():
        shown = attention_map(trial, layer=layer, head=head)
        if len(shown.words) < MIN_WORDS:
            raise InputError(
                f"the text has {len(shown.words)} tokens beside the special ones; the tests need {MIN_WORDS} or more"
            )
        logits = trial.logits()[:, 0]
        ranked = trial.probabilities(logits)[0].argsort(descending=True).tolist()
        chosen = ranked[0] if chosen is None else chosen
        other = next(number for number in ranked if number != chosen)
    gradient = gradient_times_input(trial, output=trial.outputs[chosen])
    with trial.evaluating():
        checks = FaithfulnessChecks(shown, logits, chosen, other, torch.Generator().manual_seed(seed)).checks(gradient)
    return Faithfulness(
        verdict=_verdict(checks),
        label=trial.outputs[chosen],
        probability=trial.probabilities(logits)[0, chosen].item(),
        other=trial.outputs[other],
        layer=shown.layer,
        head=shown.head,
        tokens=trial.tokens,
        weights=tuple(shown.weights.tolist()),
        special_weight=(shown.weights.sum() - shown.weights[shown.words].sum()).item(),
        checks=checks,
        gradient=gradient,
        integrated=integrated_gradients(trial, output=trial.outputs[chosen]),
        seed=seed,
    )


def _verdict(checks: tuple[FaithfulnessCheck, ...]) -> Verdict:
    passed = {check.name for check in checks if check.passed}
    if PERMUTED not in passed:
        return "decoration"
    return "honest" if len(passed) >= REQUIRED_PASSES else "doubtful"
