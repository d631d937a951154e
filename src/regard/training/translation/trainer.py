"""Trains a translation model: the loss, the order of pairs, BLEU after each epoch, and averaging of the last epochs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data.batch import collate
from regard.errors import RegardError
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import TranslationModel
from regard.models.family import build, translation_families
from regard.nn.masks import Padded
from regard.render.result import Table
from regard.training.checkpoint import Checkpoints
from regard.training.events import AverageEvaluated, Events
from regard.training.learning_curve import curve_lines
from regard.training.optimizer import build_optimizers
from regard.training.run_folder import RunReport
from regard.training.settings import learning_rate_factor
from regard.training.stopping import Stop
from regard.training.trainer import EpochTrainer
from regard.training.translation.config import TranslationConfig, TranslatorSection
from regard.wording import count_of, duration


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of a pair; each side ends with its end token."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Tokens of the longer side."""
        return max(len(self.source), len(self.target))


@dataclass(frozen=True, eq=False)
class TranslationBatch:
    """Sources (B, S) with their layout, and targets (B, T), padded on the right."""

    source: Tensor
    layout: Padded
    target: Tensor

    def to(self, device: torch.device) -> TranslationBatch:
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.to(device))
        return TranslationBatch(self.source.to(device), layout, self.target.to(device))

    def twice(self) -> TranslationBatch:
        """All rows, followed by a copy of them."""
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.repeat(2, 1))
        return TranslationBatch(self.source.repeat(2, 1), layout, self.target.repeat(2, 1))


def collate_pairs(pairs: Sequence[EncodedPair], *, padding: int) -> TranslationBatch:
    """One batch of pairs; targets are padded with `padding`, the padding of sources is masked by their layout."""
    source = collate([pair.source for pair in pairs], packed=False)
    target = collate([pair.target for pair in pairs], packed=False, padding=padding)
    assert isinstance(source.layout, Padded)
    return TranslationBatch(source.ids, source.layout, target.ids)


def group_by_length(pairs: Sequence[EncodedPair], *, tokens_per_batch: int, seed: int, epoch: int) -> list[list[int]]:
    """The indices of the pairs of each batch of an epoch.

    The tokens of a batch, with padding, are at most `tokens_per_batch`, unless it is a single pair.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(pairs)).tolist()
    # Pairs of equal length are shuffled; the sorted lengths, and so the batch boundaries, are the same in every epoch.
    order.sort(key=lambda index: (pairs[index].length, len(pairs[index].target), len(pairs[index].source)))
    batches: list[list[int]] = []
    for index in order:
        # In ascending order, the current pair is the longest.
        if not batches or (len(batches[-1]) + 1) * pairs[index].length > tokens_per_batch:
            batches.append([])
        batches[-1].append(index)
    return [batches[number] for number in generator.permutation(len(batches))]


def weight_files(*, recent: int) -> list[str]:
    """The manifest's entries for the folder of `EpochWeights`."""
    return [f"{name}/step-*/" for name in ("best", *(f"recent-{slot}" for slot in range(recent)))]


class EpochWeights:
    """Folders `best`, and `recent-I` for the last `recent` epochs, used in rotation."""

    def __init__(self, folder: Path, *, recent: int) -> None:
        self._best = Checkpoints(folder / "best", keep=1)
        self._recent = [Checkpoints(folder / f"recent-{slot}", keep=1) for slot in range(recent)]

    def save_best(self, epoch: int, model: nn.Module) -> None:
        self._best.save(epoch, _weights(model), {})

    def save_recent(self, epoch: int, model: nn.Module) -> None:
        self._recent[epoch % len(self._recent)].save(epoch, _weights(model), {})

    def load_best(self, epoch: int, model: nn.Module) -> None:
        _load(model, _read(self._best, epoch))

    def load_average(self, epochs: Sequence[int], model: nn.Module) -> None:
        """Give the model the mean weights of these epochs, which must be among the recent ones."""
        total: dict[str, Tensor] = {}
        for epoch in epochs:
            for name, tensor in _read(self._recent[epoch % len(self._recent)], epoch).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        _load(model, {name: tensor / len(epochs) for name, tensor in total.items()})


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _read(checkpoints: Checkpoints, epoch: int) -> dict[str, Tensor]:
    damaged: list[str] = []
    found = checkpoints.latest(on_damaged=damaged.append)
    if found is None or found.step != epoch:
        reason = "; ".join(damaged) or f"{checkpoints.folder}: the weights of epoch {epoch} are gone"
        raise RegardError(f"{reason}. Put a copy of them back, or start again in another folder")
    return {name: tensor for name, tensor in found.tensors.items() if isinstance(tensor, Tensor)}


def _load(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


MAIN_SCORE = "bleu"
Evaluation = Callable[[], Generator[int, None, dict[str, float]]]  # yields the number of newly translated texts


@dataclass(frozen=True)
class TranslationOutcome:
    """Scores of the weights that are kept, the epochs they come from, and the cost of the run."""

    scores: dict[str, float]
    epochs: list[int]
    seconds: float
    steps: int
    tokens: int  # of targets
    history: list[dict[str, float]] = field(default_factory=list)  # scores of each epoch
    average: dict[str, float] = field(default_factory=dict)  # scores of the average of the last epochs
    losses: list[float] = field(default_factory=list)  # the mean training loss of each epoch


class TranslationReport(RunReport):
    """The result of a run. `signature` describes how BLEU is computed; `test` are the scores of held-out pairs."""

    task: Literal["translate"] = "translate"
    model: str
    parameters: int
    device: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    signature: dict[str, str]
    outcome: TranslationOutcome
    test: dict[str, Any] = Field(default_factory=dict)

    def to_text(self) -> str:
        outcome, test = self.outcome, self.test
        epochs, cost = outcome.epochs, f"{outcome.steps:,} steps in {duration(outcome.seconds)}"
        what = f"epoch {epochs[0]}" if len(epochs) == 1 else f"the average of epochs {epochs[0]} to {epochs[-1]}"
        lines = [
            f"{self.output}: {what}, {self.parameters:,} parameters, {cost}",
            f"dev BLEU             {outcome.scores['bleu']:6.2f}  {self.signature['bleu']}",
            f"dev BLEU, lower case {outcome.scores['bleu_lowercase']:6.2f}  {self.signature['bleu_lowercase']}",
        ]
        if test:
            lines.append(f"{'test BLEU':<21}{test['bleu']:6.2f}  {count_of(test['pairs'], 'pair')} set aside")
            lines.append(f"{'test BLEU, lower case':<21}{test['bleu_lowercase']:6.2f}  beam {test['beam']}")
        lines += curve_lines(outcome.losses, outcome.history, MAIN_SCORE)
        return "\n".join(lines)

    def to_table(self) -> Table:
        names = list(self.outcome.scores)
        rows = [[epoch, *(scores[name] for name in names)] for epoch, scores in enumerate(self.outcome.history, 1)]
        return ["epoch", *names], rows


class TranslationObjective(nn.Module):
    """Cross-entropy of the target tokens with label smoothing.

    With `rdrop_weight` each pair is read twice with different dropout, and the symmetric KL divergence between the two
    predictions is added with that weight (R-Drop, Liang et al. 2021; their alpha is twice the weight).
    """

    def __init__(
        self, model: TranslationModel, *, label_smoothing: float, padding: int, rdrop_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.model, self.padding = model, padding
        self.label_smoothing, self.rdrop_weight = label_smoothing, rdrop_weight

    def forward(self, batch: TranslationBatch) -> dict[str, Tensor]:
        if self.rdrop_weight:
            batch = batch.twice()
        logits = self.model.teacher_forced_logits(batch.source, batch.layout, batch.target).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            batch.target.flatten(),
            ignore_index=self.padding,
            label_smoothing=self.label_smoothing,
        )
        if self.rdrop_weight:
            present = batch.target[: len(batch.target) // 2] != self.padding
            first, second = (half.log_softmax(-1) for half in logits.chunk(2))
            # The mean of the KL divergences in both directions.
            divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2
            loss = loss + self.rdrop_weight * (divergence * present).sum() / present.sum()
        return {"loss": loss}


class TranslationTrainer(EpochTrainer[TranslationOutcome]):
    """Checkpoints go to `folder`. `evaluate` translates the `num_dev` sentences of dev and scores the translations."""

    model: TranslationModel

    def __init__(
        self,
        model: TranslationModel,
        pairs: Sequence[EncodedPair],
        config: TranslationConfig,
        *,
        padding: int,
        device: torch.device,
        folder: Path,
        evaluate: Evaluation,
        num_dev: int,
    ) -> None:
        self.model, self.pairs, self.config, self.padding = model.to(device), pairs, config, padding
        self.evaluate, self.num_dev = evaluate, num_dev
        settings = config.training
        steps_per_epoch = len(self._epoch_batches(0))
        warmup = settings.warmup_steps / (settings.num_epochs * steps_per_epoch)
        peak, scheduler = settings.learning_rate, settings.lr_scheduler_type
        super().__init__(
            self.model,
            TranslationObjective(
                self.model,
                label_smoothing=settings.label_smoothing,
                padding=padding,
                rdrop_weight=settings.rdrop_weight,
            ),
            build_optimizers(
                self.model,
                name="adamw",
                learning_rate=peak,
                betas=(0.9, 0.98),
                eps=1e-9,
                weight_decay=settings.weight_decay,
            ),
            num_epochs=settings.num_epochs,
            patience=settings.early_stopping_patience,
            max_grad_norm=settings.max_grad_norm,
            run=config.run,
            steps_per_epoch=steps_per_epoch,
            learning_rate=lambda done: peak * learning_rate_factor(done, warmup=warmup, scheduler=scheduler),
            main_score=MAIN_SCORE,
            seed=config.run.seed,
            device=device,
            folder=folder / "checkpoints",
        )
        self.weights = EpochWeights(folder, recent=settings.average_epochs)
        self.tokens_per_epoch = sum(len(pair.target) for pair in pairs)

    def run(self, stop: Stop) -> Events[TranslationOutcome | None]:
        yield from self._resume()
        return (yield from self._finish()) if (yield from self._train(stop)) else None

    def _epoch_batches(self, epoch: int) -> list[list[int]]:
        tokens, seed = self.config.training.tokens_per_batch, self.config.run.seed
        return group_by_length(self.pairs, tokens_per_batch=tokens, seed=seed, epoch=epoch)

    def _inputs(self, indices: Sequence[int], step: int) -> dict[str, Any]:
        return {"batch": collate_pairs([self.pairs[index] for index in indices], padding=self.padding).to(self.device)}

    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        done, steps = 0, self.evaluate()
        while True:
            try:
                done += next(steps)
            except StopIteration as end:
                scores: dict[str, float] = end.value
                return scores
            yield from self._evaluation_progress(done, self.num_dev)

    def _keep_weights(self, epoch: int) -> None:
        if self.best_epoch == epoch:
            self.weights.save_best(epoch, self.model)
        self.weights.save_recent(epoch, self.model)

    def _finish(self) -> Events[TranslationOutcome]:
        settings = self.config.training
        last = list(range(max(self.epoch - settings.average_epochs, 0) + 1, self.epoch + 1))
        best = self.history[self.best_epoch - 1]
        self.weights.load_average(last, self.model)
        average = yield from self._scores(self.epoch)
        yield AverageEvaluated(epochs=last, scores=average)
        epochs, scores = last, average
        if settings.select == "best" and best[MAIN_SCORE] > average[MAIN_SCORE]:
            self.weights.load_best(self.best_epoch, self.model)
            epochs, scores = [self.best_epoch], best
        tokens = self.tokens_per_epoch * self.epoch
        cost = self.stopwatch.elapsed, self.step, tokens
        return TranslationOutcome(scores, epochs, *cost, self.history, average, self.losses)

    def _step_details(self, seconds: float) -> dict[str, Any]:
        tokens = self.step / self.steps_per_epoch * self.tokens_per_epoch
        return {**super()._step_details(seconds), "tokens_per_second": tokens / max(seconds, 1e-9)}


def new_model(settings: TranslatorSection, subwords: Subwords, *, seed: int) -> TranslationModel:
    """A model with new weights that follow from the seed."""
    family = translation_families()[settings.family]
    assert family.translation is not None
    torch.manual_seed(seed)
    model: TranslationModel = build(family.config_class(**family.translation.config_fields(dict(settings), subwords)))
    return model
