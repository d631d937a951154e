"""How much each token contributes to one output of a model.

*Integrated gradients* (Sundararajan, Taly and Yan 2017) averages the gradient on the path from a baseline to the text,
and so should sum to the difference of the output between the two: the completeness error is how far it is off.
*Gradient x input* multiplies a token's embedding with the gradient: what the output would lose if the model were
linear. *Occlusion* is what the output loses when the baseline replaces the token. These three are on the scale of the
output, which is a logit or the value of a regression. *Attention* and *rollout* are the weights of the position that
the output is read from, which sum to 1: in the last layer, averaged over the heads, and through all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.examples import Example
from regard.errors import InputError
from regard.inference.causal_lm import BATCH_TOKENS
from regard.inference.masked_lm import find_blanks
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.probe import Probe, ProbedModel, TextProbe, task_probe
from regard.render.result import Result, Table
from regard.render.terminal import padded
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.task import Prediction

Method = Literal["integrated-gradients", "gradient-x-input", "occlusion", "attention", "rollout"]
STEPS = 32
BAR = 20  # characters for the largest score
MAX_OUTPUTS = 4  # outputs of one example that evidence is gathered for


@dataclass(frozen=True)
class Attribution:
    """A score for each token, for (above 0) or against `output` of `target`, whose logit is `value`.

    `baseline` replaces the tokens at the start of the path of integrated gradients, and in occlusion. For integrated
    gradients, `baseline_value` is the logit there, `steps` the number of gradients, and `completeness_error` the sum of
    the scores minus (`value` - `baseline_value`). What a method does not have is None.
    """

    method: str
    target: str
    output: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    value: float
    baseline: str | None = None
    baseline_value: float | None = None
    steps: int | None = None
    completeness_error: float | None = None


@dataclass(frozen=True)
class AttributedToken:
    """A token with its score, and its characters [start, end) in the text of this index; None for special tokens."""

    token: str
    score: float
    special: bool
    text: int | None
    start: int | None
    end: int | None


class AttributionResult(Result):
    """The contribution of each token to `label`, which has `probability` (for a regression, its value) and `value`.

    `value` is the logit of the label at `target`: a blank, the next token, the text, a word of a tagger, the start or
    the end of an answer. See `Attribution` for the other fields.
    """

    model: ProbedModel
    texts: tuple[str, ...]
    method: Method
    target: str
    label: str
    probability: float
    value: float
    baseline: str | None
    baseline_value: float | None
    steps: int | None
    completeness_error: float | None
    tokens: tuple[AttributedToken, ...]

    def to_text(self) -> str:
        largest = max(abs(one.score) for one in self.tokens) or 1.0
        form = "z.3f" if self.model.problem_type == "regression" else ".1%"
        lines = [f"{self.target}: {self.label} {self.probability:{form}}; {self.method.replace('-', ' ')}", ""]
        for name, one in zip(padded(one.token for one in self.tokens), self.tokens, strict=True):
            bar = ("-" if one.score < 0 else "█") * round(abs(one.score) / largest * BAR)
            lines.append(f"  {name}  {one.score:z8.3f}  {bar}".rstrip())
        if self.completeness_error is not None:
            gain = self.value - (self.baseline_value or 0.0)
            lines += ["", f"the scores should sum to {gain:.3f}; completeness error {self.completeness_error:z.3f}"]
        return "\n".join(lines)

    def to_table(self) -> Table:
        return ("token", "score", "special", "text", "start", "end"), [tuple(vars(one).values()) for one in self.tokens]


def attribute(
    probe: TextProbe,
    *,
    method: Method = "integrated-gradients",
    target: int = 0,
    label: str | None = None,
    steps: int = STEPS,
    baseline: str | None = None,
) -> AttributionResult:
    """Attribute an output of a model, by default the likeliest, to the tokens that it reads; `target` counts from 0.

    `steps` is for integrated gradients; `baseline` for these and for occlusion, see `integrated_gradients`.
    """
    index, name = _output(probe, target, label)
    match method:
        case "integrated-gradients":
            found = integrated_gradients(probe, target=target, output=index, steps=steps, baseline=baseline)
        case "gradient-x-input":
            found = gradient_times_input(probe, target=target, output=index)
        case "occlusion":
            found = occlusion(probe, target=target, output=index, baseline=baseline)
        case _:
            found = _attention(probe, target, index, method)
    with probe.evaluation_mode():
        probability = probe.probabilities(probe.logits())[0, target, index].item()
    tokens = zip(probe.token_texts, found.scores, probe.special, strict=True)
    return AttributionResult(
        model=probe.describe(),
        texts=probe.texts,
        method=method,
        target=found.target,
        label=name,
        probability=probability,
        value=found.value,
        baseline=found.baseline,
        baseline_value=found.baseline_value,
        steps=found.steps,
        completeness_error=found.completeness_error,
        tokens=tuple(
            AttributedToken(*token, *span) for token, span in zip(tokens, _character_spans(probe), strict=True)
        ),
    )


def gradient_times_input(probe: Probe, *, target: int = 0, output: str | int | None = None) -> Attribution:
    """For an output by name or index, by default the likeliest; `target` counts from 0."""
    index, name = _output(probe, target, output)
    embeddings = probe.token_embeddings().detach()
    values, gradients = _gradients(probe, embeddings[None], target, index)
    scores = tuple((gradients[0] * embeddings.double()).sum(-1).tolist())
    return Attribution("gradient x input", probe.targets[target], name, probe.tokens, scores, values.item())


def integrated_gradients(
    probe: Probe,
    *,
    target: int = 0,
    output: str | int | None = None,
    steps: int = STEPS,
    baseline: str | None = None,
) -> Attribution:
    """For an output by name or index, by default the likeliest; `target` counts from 0.

    The baseline is the input without content, see `Probe.baseline`; positions and segments stay as they are. The
    integral is Gauss-Legendre quadrature with `steps` points, which is best for smooth functions.
    """
    index, name = _output(probe, target, output)
    kind, start = probe.baseline(baseline)
    end = probe.token_embeddings().detach()
    points, weights = np.polynomial.legendre.leggauss(steps)
    fractions = torch.from_numpy((points + 1) / 2).to(end)
    path = start + fractions[:, None, None] * (end - start)
    gradients = [_gradients(probe, part, target, index)[1] for part in _batches(path)]
    mean = torch.einsum("s,stw->tw", torch.from_numpy(weights / 2).to(end.device), torch.cat(gradients))
    scores = (mean * (end - start).double()).sum(-1)
    value, first = _values(probe, torch.stack([end, start]), target, index).tolist()
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


def occlusion(
    probe: Probe, *, target: int = 0, output: str | int | None = None, baseline: str | None = None
) -> Attribution:
    """What the output loses when the baseline replaces each token alone; see `integrated_gradients`."""
    index, name = _output(probe, target, output)
    kind, replacement = probe.baseline(baseline)
    whole = probe.token_embeddings().detach()
    each = torch.eye(len(whole), dtype=torch.bool, device=whole.device)[:, :, None]
    value, *without = _values(probe, torch.cat([whole[None], torch.where(each, replacement, whole)]), target, index)
    scores = tuple((value - one).item() for one in without)
    return Attribution("occlusion", probe.targets[target], name, probe.tokens, scores, value.item(), kind)


def _attention(probe: Probe, target: int, index: int, method: str) -> Attribution:
    maps, position = probe.attention(), probe.position_of(target, index)
    scores = maps[-1, :, position].mean(0) if method == "attention" else rollout(maps)[-1, position]
    value = _values(probe, probe.token_embeddings().detach()[None], target, index).item()
    name = probe.outputs[index]
    return Attribution(method, probe.targets[target], name, probe.tokens, tuple(scores.tolist()), value)


def _output(probe: Probe, target: int, output: str | int | None) -> tuple[int, str]:
    if not 0 <= target < len(probe.targets):
        raise InputError(f"target is {target}; expected 0 to {len(probe.targets) - 1} for this text")
    if isinstance(output, str):
        return probe.output_index(output), output
    if output is None:
        with probe.evaluation_mode():
            output = int(probe.logits()[0, target].argmax())
    return output, probe.outputs[output]


def _batches(embeddings: Tensor) -> tuple[Tensor, ...]:
    return torch.split(embeddings, max(1, BATCH_TOKENS[embeddings.device.type] // embeddings.shape[1]))


def _values(probe: Probe, embeddings: Tensor, target: int, index: int) -> Tensor:
    """The logit of each copy, (B,)."""
    with probe.evaluation_mode():
        return torch.cat([probe.logits(part)[:, target, index] for part in _batches(embeddings)])


def _gradients(probe: Probe, embeddings: Tensor, target: int, index: int) -> tuple[Tensor, Tensor]:
    """The logit of each copy (B,) and its gradient with respect to the embeddings (B, T, W), in float64."""
    with probe.evaluation_mode(gradients=True):
        inputs = embeddings.clone().requires_grad_()
        values = probe.logits(inputs)[:, target, index]
        (gradients,) = torch.autograd.grad(values.sum(), inputs)
    return values.detach(), gradients.double()


def _character_spans(probe: TextProbe) -> list[tuple[int, int, int] | tuple[None, None, None]]:
    """For each token the index of its text and the characters [start, end) there."""
    ids = probe.ids.tolist()
    spans: list[tuple[int, int, int] | tuple[None, None, None]] = [(None, None, None)] * len(ids)
    mask = probe.tokenizer.mask_token_id
    if probe.task == "fill" and mask is not None and mask in ids:
        offsets = find_blanks(probe.texts[0], probe.tokenizer, mask).offsets
        return [span if end == 0 else (0, start, end) for span, (start, end) in zip(spans, offsets, strict=True)]
    first = 0
    for text, encoding in enumerate(probe.tokenizer.encode_batch(list(probe.texts), add_special_tokens=False)):
        for start in range(first, len(ids) - len(encoding) + 1):
            first = start + len(encoding)
            if ids[start:first] == encoding.ids:
                spans[start:first] = [(text, *offset) for offset in encoding.offsets]
                break
    return spans


@dataclass(frozen=True)
class Evidence:
    """The evidence for one output: `about` names it, `token` is the position it is read from.

    `attention` (L, T) is the attention of that position in each layer from layer 1 on, averaged over the heads;
    `rollout` (T,) is the attention rollout through all layers. `integrated` and `gradient` are attributions of the
    output's logit.
    """

    about: str
    token: int
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    attention: tuple[tuple[float, ...], ...]
    rollout: tuple[float, ...]
    integrated: Attribution
    gradient: Attribution


def gather_evidence(fine_tuned: FineTunedModel, example: Example, prediction: Prediction) -> list[Evidence]:
    """Evidence for the first outputs of a prediction: its labels, its entities, the ends of its answer.

    InputError if the model or the example cannot be explained: an image, an LSTM, a text that is split or truncated.
    """
    task = fine_tuned.task
    probe = task_probe(fine_tuned, *task.texts(example))
    inputs = task.preprocess([example], fine_tuned.input_builder)[0]
    tokens = probe.token_texts
    explained = task.explained_outputs(example, prediction, inputs, tokens)[:MAX_OUTPUTS]
    if not explained:
        return []
    maps = probe.attention()
    rolled_out = rollout(maps)[-1]
    evidence = []
    for about, target, output in explained:
        position = probe.position_of(target, output)
        evidence.append(
            Evidence(
                about=about,
                token=position,
                tokens=tokens,
                special=probe.special,
                attention=tuple(tuple(layer) for layer in maps[:, :, position].mean(1).tolist()),
                rollout=tuple(rolled_out[position].tolist()),
                integrated=integrated_gradients(probe, target=target, output=output),
                gradient=gradient_times_input(probe, target=target, output=output),
            )
        )
    return evidence
