"""How much each token contributes to one output of a model: two gradient methods on the same scale.

*Gradient x input* multiplies a token's embedding with the gradient of the output: what the output would lose if the
model were linear. *Integrated gradients* (Sundararajan, Taly and Yan 2017) averages the gradient on the path from a
baseline to the text, and so should sum to the difference of the output between the two: the completeness error is how
far it is off. The output is a logit, or the value of a regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, check_choice
from regard.inference.masked_lm import BATCH_TOKENS
from regard.interpret.attribution.probe import Probe

Baseline = Literal["mask", "pad", "zero"]
BASELINES = ("mask", "pad", "zero")
STEPS = 32


@dataclass(frozen=True)
class Attribution:
    """A score for each token, for (above 0) or against `output` of `target`, whose logit is `value`.

    For integrated gradients, `baseline` replaces the tokens at the start of the path, `baseline_value` is the logit
    there, `steps` the number of gradients, and `completeness_error` the sum of the scores minus (`value` -
    `baseline_value`). All four are None for gradient x input.
    """

    method: str
    target: str
    output: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    value: float
    baseline: Baseline | None = None
    baseline_value: float | None = None
    steps: int | None = None
    completeness_error: float | None = None


def gradient_times_input(probe: Probe, *, target: int = 0, output: str | None = None) -> Attribution:
    """For an output by name, by default the likeliest; `target` counts from 0."""
    index, name = _output(probe, target, output)
    embeddings = probe.token_embeddings().detach()
    values, gradients = _gradients(probe, embeddings[None], target, index)
    scores = tuple((gradients[0] * embeddings.double()).sum(-1).tolist())
    return Attribution("gradient x input", probe.targets[target], name, probe.tokens, scores, values.item())


def integrated_gradients(
    probe: Probe, *, target: int = 0, output: str | None = None, steps: int = STEPS, baseline: Baseline | None = None
) -> Attribution:
    """For an output by name, by default the likeliest; `target` counts from 0.

    The baseline has [MASK] or [PAD] in place of every token that is not special, or zero embeddings for all tokens; the
    default is the first of these that the tokenizer has. Positions and segments stay as they are. The integral is
    Gauss-Legendre quadrature with `steps` points, which is best for smooth functions.
    """
    if steps < 1:
        raise InputError(f"steps is {steps}; expected the number of gradients to average, at least 1")
    index, name = _output(probe, target, output)
    kind, start = _baseline(probe, baseline)
    end = probe.token_embeddings().detach()
    points, weights = np.polynomial.legendre.leggauss(steps)
    fractions = torch.from_numpy((points + 1) / 2).to(end)
    path = start + fractions[:, None, None] * (end - start)
    gradients = [
        _gradients(probe, part, target, index)[1]
        for part in torch.split(path, max(1, BATCH_TOKENS[end.device.type] // len(end)))
    ]
    mean = torch.einsum("s,stw->tw", torch.from_numpy(weights / 2).to(end.device), torch.cat(gradients))
    scores = (mean * (end - start).double()).sum(-1)
    with probe.evaluation_mode():
        value, first = (probe.logits(one[None])[0, target, index].item() for one in (end, start))
    return Attribution(
        method="integrated gradients",
        target=probe.targets[target],
        output=name,
        tokens=probe.tokens,
        scores=tuple(scores.tolist()),
        value=value,
        baseline=kind,
        baseline_value=first,
        steps=steps,
        completeness_error=scores.sum().item() - (value - first),
    )


def _output(probe: Probe, target: int, output: str | None) -> tuple[int, str]:
    if not 0 <= target < len(probe.targets):
        raise InputError(f"target is {target}; expected 0 to {len(probe.targets) - 1}: this text has so many")
    if output is not None:
        return probe.output_index(output), output
    with probe.evaluation_mode():
        index = int(probe.logits()[0, target].argmax())
    return index, probe.outputs[index]


def _baseline(probe: Probe, baseline: Baseline | None) -> tuple[Baseline, Tensor]:
    """The name and the embeddings (T, W) of the baseline."""
    ids = {"mask": probe.tokenizer.mask_token_id, "pad": probe.tokenizer.pad_token_id}
    if baseline is None:
        baseline = "mask" if ids["mask"] is not None else "pad" if ids["pad"] is not None else "zero"
    check_choice("baseline", baseline, BASELINES)
    embeddings = probe.token_embeddings().detach()
    if baseline == "zero":
        return baseline, torch.zeros_like(embeddings)
    if ids[baseline] is None:
        raise InputError(f"the baseline is {baseline}, and this model's tokenizer has no such token; use zero")
    token: Tensor = probe.encoder.embedding.tokens.weight[ids[baseline]].detach()
    special = torch.tensor(probe.special, device=embeddings.device)
    return baseline, torch.where(special[:, None], embeddings, token)


def _gradients(probe: Probe, embeddings: Tensor, target: int, index: int) -> tuple[Tensor, Tensor]:
    """The logit of each copy (B,) and its gradient with respect to the embeddings (B, T, W), in float64."""
    with probe.evaluation_mode(gradients=True):
        inputs = embeddings.clone().requires_grad_()
        values = probe.logits(inputs)[:, target, index]
        (gradients,) = torch.autograd.grad(values.sum(), inputs)
    return values.detach(), gradients.double()
