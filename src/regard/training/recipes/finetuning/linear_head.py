"""Linear heads on cached vectors of a frozen encoder: logistic or ridge regression, fitted to convergence.

Features are centered and scaled for the fit, each part (u, v, |u - v|, u * v, the cosine) as a whole, and that is
folded into the weights: the result is a `VectorHead`. The strength of the penalty is chosen by cross-validation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.examples import Example, split_folds
from regard.engine.tuning import use_threads
from regard.events import Note, Progress
from regard.tasks.encoder_with_head import EncoderWithHead, VectorHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.inputs import InputBuilder, VectorSettings
from regard.tasks.task import LossFunction, Prediction, Task, TaskInput
from regard.text import Tokenizer
from regard.training.doctor.data import spaced
from regard.training.events import Evaluated, Events
from regard.training.recipe import TrainingOutcome
from regard.training.recipes.finetuning.report import Scores

STRENGTHS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 1e-1)  # C of scikit-learn, for features of variance 1
COSINE_WEIGHT = 30.0  # the cosine of a pair is penalized less than the 4 * W other features
BATCH = 32  # inputs that are encoded together
FEW_FEATURES = 1_000_000  # whose products take less time than waking up a second thread
FOLDS = 5
FOLDED_ROWS = 2000  # with more rows, one fold is enough to choose the strength
MAX_ROWS = 100_000  # more add nothing to a linear layer


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fitted layer for features that are not standardized, and its training loss."""

    weight: Tensor
    bias: Tensor
    loss: float
    strength: float
    iterations: int


class VectorModel:
    """An encoder whose vectors of texts, or pairs, are the features of linear heads."""

    language: str = ""  # that the encoder states

    def __init__(
        self, task: Task[Any], encoder: Any, tokenizer: Tokenizer, vectors: VectorSettings, *, length: int
    ) -> None:
        self.task, self.tokenizer, self.vectors = task, tokenizer, vectors
        self.length = min(length, getattr(encoder.config, "max_position_embeddings", length))
        self.network = EncoderWithHead.from_encoder(encoder, task, vectors)
        self.width = self.network.head.output.in_features
        self.network.head.output = nn.Identity()  # type: ignore[assignment]
        self.builder = InputBuilder(
            tokenizer, family=encoder.config.family, max_length=self.length, vectors=self.vectors
        )

    def inputs(self, examples: Sequence[Example]) -> list[TaskInput]:
        return self.task.preprocess(examples, self.builder)

    def features(self, inputs: Sequence[TaskInput], device: torch.device) -> Tensor:
        """The features of each input, (inputs, features) in float64 on the CPU."""
        # In batches that do not depend on the speed of the machine, so that the same rows give the same bits.
        network, order = self.network.to(device).eval(), sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        parts = []
        with torch.no_grad():
            for start in range(0, len(order), BATCH):
                batch = network.collate([inputs[index] for index in order[start : start + BATCH]])
                parts.append(network(batch.to(device)).double().cpu())
        result = torch.cat(parts)
        result[order] = result.clone()
        return result

    def fit(
        self, features: Tensor, inputs: Sequence[TaskInput], examples: Sequence[Example], loss: LossFunction
    ) -> LinearFit:
        width = self.network.encoder.config.hidden_size if self.vectors.num_texts == 2 else self.width
        few = features.numel() <= FEW_FEATURES
        with use_threads(1 if few else torch.get_num_threads()):
            return fit_linear(features, self.task, inputs, examples, loss, width=width)

    def with_head(self, fit: LinearFit, *, precision: Any = "auto") -> FineTunedModel:
        """The fine-tuned model: the encoder with the fitted head."""
        encoder = self.network.encoder
        head = VectorHead(1, self.task.num_outputs, self.vectors)
        head.output = nn.Linear(self.width, self.task.num_outputs)
        with torch.no_grad():
            head.output.weight.copy_(fit.weight)
            head.output.bias.copy_(fit.bias)
        model = EncoderWithHead(encoder, head).eval()
        return FineTunedModel(self.task, model, self.tokenizer, self.length, precision, language=self.language)


def predict_linear(
    task: Task[Any], fit: LinearFit, features: Tensor, inputs: Sequence[TaskInput], examples: Sequence[Example]
) -> list[Prediction]:
    logits = features @ fit.weight.T + fit.bias
    return task.postprocess(examples, inputs, list(logits[:, None]))


def fit_linear(
    features: Tensor,
    task: Task[Any],
    inputs: Sequence[TaskInput],
    examples: Sequence[Example],
    loss: LossFunction,
    *,
    width: int,
) -> LinearFit:
    """Fit a linear layer to features in parts of `width`, the last of which may be a cosine alone.

    The penalty is the one with the fewest errors on held-out folds, then with the lowest loss: with few rows the loss
    alone prefers confident models to right ones.
    """
    _, targets = task.logits_and_targets(torch.zeros(len(inputs), task.num_outputs, dtype=torch.double), inputs)
    targets = targets.double() if targets.is_floating_point() else targets
    mean, variance, factor = features.mean(0), features.var(0, unbiased=False), torch.zeros(features.shape[1])
    for first in range(0, len(factor), width):
        deviation = float(variance[first : first + width].mean().sqrt())
        emphasis = COSINE_WEIGHT if first and first + 1 == len(factor) else 1.0
        factor[first : first + width] = emphasis / deviation if deviation > 1e-8 else 0.0
    factor = factor.double()
    x = (features - mean) * factor

    def objective(logits: Tensor, rows: Tensor) -> Tensor:
        flat = logits.squeeze(-1) if targets.dim() == 1 and targets.is_floating_point() else logits
        return loss(flat, targets[rows])

    def solve(
        rows: Tensor, strength: float, start: Tensor, *, max_iter: int = 500, tolerance: float = 1e-6
    ) -> tuple[Tensor, float, int]:
        """Minimize the mean loss + |w|^2 / (2 C n) with L-BFGS; the last row of the result is the bias."""
        chosen, parameters = x[rows], start.clone().requires_grad_()
        optimizer = torch.optim.LBFGS(
            [parameters], max_iter=max_iter, tolerance_grad=tolerance, history_size=20, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            penalty = parameters[:-1].square().sum() / (2 * strength * len(rows))
            value = objective(chosen @ parameters[:-1] + parameters[-1], rows) + penalty
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        found = parameters.detach()
        value = float(objective(chosen @ found[:-1] + found[-1], rows))
        return found, value, int(optimizer.state[parameters]["n_iter"])

    def held_out(parameters: Tensor, rows: Tensor) -> tuple[float, float]:
        """The sum of the losses, and the number of errors."""
        logits = x[rows] @ parameters[:-1] + parameters[-1]
        return float(objective(logits, rows)) * len(rows), _count_errors(logits, targets[rows])

    zero = torch.zeros(x.shape[1] + 1, task.num_outputs, dtype=torch.double)
    strength = _choose_strength(examples, zero, solve, held_out) if factor.any() else STRENGTHS[0]
    found, value, iterations = solve(torch.arange(len(x)), strength, zero)
    weight = (found[:-1] * factor[:, None]).T
    return LinearFit(weight, found[-1] - weight @ mean, value, strength, iterations)


def _choose_strength(examples: Sequence[Example], zero: Tensor, solve: Any, held_out: Any) -> float:
    folds, everything = split_folds(examples, FOLDS), torch.arange(len(examples))
    folds = folds[:1] if len(examples) > FOLDED_ROWS else folds
    if len(folds) == 1 and len(examples) <= FOLDED_ROWS:  # all texts are equal
        return STRENGTHS[len(STRENGTHS) // 2]
    losses, errors = torch.zeros(2, len(STRENGTHS), dtype=torch.double)
    for fold in map(torch.tensor, folds):
        rest, start = everything[~torch.isin(everything, fold)], zero
        for number, strength in enumerate(STRENGTHS):
            start, _, _ = solve(rest, strength, start, max_iter=60, tolerance=1e-4)  # enough to rank the strengths
            loss, wrong = held_out(start, fold)
            losses[number] += loss
            errors[number] += wrong
    return min(zip(errors.tolist(), losses.tolist(), STRENGTHS, strict=True))[-1]


def _count_errors(logits: Tensor, targets: Tensor) -> float:
    """Wrong classes; 0 for numbers, where the loss decides alone."""
    if targets.dim() == 2:
        return float(((logits > 0) != (targets > 0.5)).sum())
    return 0.0 if targets.is_floating_point() else float((logits.argmax(-1) != targets).sum())


class FrozenTrainer:
    """Fits the head of a frozen encoder; with the methods of `Trainer` that a run calls."""

    def __init__(
        self,
        vectors: VectorModel,
        examples: Sequence[Example],
        class_weights: Any,
        *,
        device: torch.device,
        evaluate: Callable[[EncoderWithHead], Scores] | None = None,
        loss: LossFunction | None = None,
        dev_examples: int | None = None,
    ) -> None:
        self.vectors, self.examples, self.device, self.dev_examples = vectors, examples, device, dev_examples
        self.seed: int | None = None  # that events name
        self.class_weights, self.evaluate, self.loss = class_weights, evaluate, loss
        self.model: Any = None

    def train(self) -> Events[TrainingOutcome]:
        started, task, examples = time.monotonic(), self.vectors.task, self.examples
        if len(examples) > MAX_ROWS:
            yield Note(message=f"the head is fitted to a sample of {MAX_ROWS:,} of {len(examples):,} examples")
        examples = spaced(examples, MAX_ROWS)
        inputs = self.vectors.inputs(examples)
        loss = self.loss or task.loss_function(task.class_weights(inputs, self.class_weights))
        features = self.vectors.features(inputs, self.device)
        yield Progress(stage="embedding the texts", done=len(inputs), total=len(inputs))
        fit = self.vectors.fit(features, inputs, examples, loss)
        self.model = self.vectors.with_head(fit).model.to(self.device)
        scores = {} if self.evaluate is None else self.evaluate(self.model)
        seconds = time.monotonic() - started
        if scores:
            known: dict[str, Any] = {"seed": self.seed, "examples": self.dev_examples}
            yield Evaluated(epoch=1, seconds=seconds, scores=scores, train_loss=fit.loss, **known)
        return TrainingOutcome(scores, [1.0], seconds, fit.iterations, 0, [scores], losses=[fit.loss])

    def whole_model(self) -> Any:
        return self.model
