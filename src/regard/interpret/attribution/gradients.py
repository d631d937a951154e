"""How much each token of a text adds to one answer of a model, by gradients: two ways, on the same scale.

*Gradient x input* multiplies a token's vector with the gradient of the answer: what the answer would lose, were the
model linear. *Integrated gradients* (Sundararajan, Taly and Yan 2017) averages the gradient on the way from a baseline
to the text, and so must add up to what the answer gained on that way: the completeness error says how nearly it does.

The answer is a logit, or the value of a task that has one. Knows trials; knows nothing of attention or pages.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.checkpoints.ready import BUDGET
from regard.errors import InputError, choice
from regard.interpret.attribution.probe import Probe

__all__ = ["BASELINES", "STEPS", "Attribution", "Baseline", "gradient_times_input", "integrated_gradients"]

Baseline = Literal["mask", "pad", "zero"]
BASELINES = ("mask", "pad", "zero")
STEPS = 32


@dataclass(frozen=True)
class Attribution:
    """A score for each token, for (above 0) or against `output` at `place`, which has the logit `value`.

    Of integrated gradients, `baseline` is what the tokens were before, `start` the logit there, `steps` the number of
    gradients, and `error` the sum of the scores less (`value` - `start`); all None of gradient x input.
    """

    method: str
    place: str
    output: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    value: float
    baseline: Baseline | None = None
    start: float | None = None
    steps: int | None = None
    error: float | None = None

    def document(self) -> dict[str, object]:
        return asdict(self)


def gradient_times_input(trial: Probe, *, place: int = 0, output: str | None = None) -> Attribution:
    """For an output by its name, by default the likeliest; `place` counts from 0."""
    number, name = _asked(trial, place, output)
    vectors = trial.token_embeddings().detach()
    values, gradients = _gradients(trial, vectors[None], place, number)
    scores = tuple((gradients[0] * vectors.double()).sum(-1).tolist())
    return Attribution("gradient x input", trial.targets[place], name, trial.tokens, scores, values.item())


def integrated_gradients(
    trial: Probe, *, place: int = 0, output: str | None = None, steps: int = STEPS, baseline: Baseline | None = None
) -> Attribution:
    """For an output by its name, by default the likeliest; `place` counts from 0.

    The baseline has [MASK] or [PAD] for every token but those around the text, or vectors of zeros for all; by default
    the first of these that the tokenizer has. Positions and segments stay as they are. The integral is Gauss and
    Legendre's sum of so many `steps`, the best there is for a smooth function.
    """
    if steps < 1:
        raise InputError(f"steps is {steps}; expected the number of gradients to average, at least 1")
    number, name = _asked(trial, place, output)
    kind, start = _start(trial, baseline)
    end = trial.token_embeddings().detach()
    points, weights = np.polynomial.legendre.leggauss(steps)
    shares = torch.from_numpy((points + 1) / 2).to(end)
    way = start + shares[:, None, None] * (end - start)
    found = [
        _gradients(trial, some, place, number)[1]
        for some in torch.split(way, max(1, BUDGET[end.device.type] // len(end)))
    ]
    mean = torch.einsum("s,stw->tw", torch.from_numpy(weights / 2).to(end.device), torch.cat(found))
    scores = (mean * (end - start).double()).sum(-1)
    with trial.evaluating():
        value, first = (trial.logits(one[None])[0, place, number].item() for one in (end, start))
    return Attribution(
        method="integrated gradients",
        place=trial.targets[place],
        output=name,
        tokens=trial.tokens,
        scores=tuple(scores.tolist()),
        value=value,
        baseline=kind,
        start=first,
        steps=steps,
        error=scores.sum().item() - (value - first),
    )


def _asked(trial: Probe, place: int, output: str | None) -> tuple[int, str]:
    if not 0 <= place < len(trial.targets):
        raise InputError(f"place {place} is asked for, and this text has {len(trial.targets)}, counted from 0")
    if output is not None:
        return trial.output_index(output), output
    with trial.evaluating():
        number = int(trial.logits()[0, place].argmax())
    return number, trial.outputs[number]


def _start(trial: Probe, baseline: Baseline | None) -> tuple[Baseline, Tensor]:
    """The baseline's name and vectors (T, W)."""
    known = {"mask": trial.tokenizer.mask, "pad": trial.tokenizer.pad}
    if baseline is None:
        baseline = "mask" if known["mask"] is not None else "pad" if known["pad"] is not None else "zero"
    choice("baseline", baseline, BASELINES)
    vectors = trial.token_embeddings().detach()
    if baseline == "zero":
        return baseline, torch.zeros_like(vectors)
    if known[baseline] is None:
        raise InputError(f"the baseline is {baseline}, and this model's tokenizer has no such token; take zero")
    nothing: Tensor = trial.encoder.embedding.tokens.weight[known[baseline]].detach()
    special = torch.tensor(trial.special, device=vectors.device)
    return baseline, torch.where(special[:, None], vectors, nothing)


def _gradients(trial: Probe, vectors: Tensor, place: int, number: int) -> tuple[Tensor, Tensor]:
    """The logit of each copy (B,), and its gradient by the copy's vectors (B, T, W) in float64."""
    with trial.evaluating(gradients=True):
        given = vectors.clone().requires_grad_()
        values = trial.logits(given)[:, place, number]
        (gradients,) = torch.autograd.grad(values.sum(), given)
    return values.detach(), gradients.double()
