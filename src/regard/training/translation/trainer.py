"""Training a translator: the loss, the order of pairs, BLEU after each epoch, the best and the last weights kept.

How epochs go on is `regard.training.epoch_trainer`. Knows no files but weights; prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.inference.translation.model import TranslationModel, teacher_forced_logits
from regard.training import optimizer
from regard.training.epoch_trainer import Epochs
from regard.training.run_folder import Note
from regard.training.schedule import factor
from regard.training.stopping import Stop
from regard.training.translation.batches import EncodedPair, TranslationBatch, gather, grouped
from regard.training.translation.config import TranslationConfig
from regard.training.translation.epoch_weights import EpochWeights

__all__ = ["Note", "TranslationObjective", "TranslationOutcome", "TranslationTrainer"]

MAIN = "bleu"  # the score that decides
Told = Callable[[int, int], None]  # how many are done, of how many


@dataclass(frozen=True)
class TranslationOutcome:
    """Scores of the model that is kept, which epochs it is made of, and what the run took."""

    scores: dict[str, float]
    epochs: list[int]
    seconds: float
    steps: int
    tokens: int  # of targets
    history: list[dict[str, float]] = field(default_factory=list)  # an epoch's scores
    average: dict[str, float] = field(default_factory=dict)  # the scores of the last epochs' average


class TranslationObjective(nn.Module):
    """What is minimised: the cross-entropy of each target token, a part of the target spread over all words.

    With `consistency` each pair is read twice, and to the mean of both losses comes so much of the divergence between
    the two predictions, in which other numbers were left out (Liang et al. 2021; their alpha is twice this).
    """

    def __init__(self, model: TranslationModel, *, smoothing: float, padding: int, consistency: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing, self.padding, self.consistency = model, smoothing, padding, consistency

    def forward(self, batch: TranslationBatch) -> dict[str, Tensor]:
        if self.consistency:
            batch = batch.twice()
        scores = teacher_forced_logits(self.model, batch.source, batch.layout, batch.target).float()
        loss = F.cross_entropy(
            scores.flatten(0, 1), batch.target.flatten(), ignore_index=self.padding, label_smoothing=self.smoothing
        )
        if self.consistency:
            there = batch.target[: len(batch.target) // 2] != self.padding
            first, second = (half.log_softmax(-1) for half in scores.chunk(2))
            # Half of Kullback and Leibler's divergence one way, and half of it the other way.
            apart = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2
            loss = loss + self.consistency * (apart * there).sum() / there.sum()
        return {"loss": loss}


class TranslationTrainer(Epochs):
    """`folder` is for checkpoints; `judge` lets the model translate what it does not learn from, and scores that. It is
    given what to tell how many sentences of how many are done."""

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
        judge: Callable[[Told], dict[str, float]],
        note: Note = lambda event, **values: None,
    ) -> None:
        self.model, self.pairs, self.config, self.padding, self.judge = model.to(device), pairs, config, padding, judge
        settings = config.training
        per_epoch = len(self._groups(0))
        warmup = settings.warmup_steps / (settings.num_epochs * per_epoch)
        super().__init__(
            self.model,
            TranslationObjective(
                self.model, smoothing=settings.label_smoothing, padding=padding, consistency=settings.rdrop_weight
            ),
            optimizer.build(
                self.model,
                name="adamw",
                rate=settings.learning_rate,
                betas=(0.9, 0.98),
                eps=1e-9,
                weight_decay=settings.weight_decay,
            ),
            training=settings,
            run=config.run,
            per_epoch=per_epoch,
            rate=lambda done: (
                settings.learning_rate * factor(done, warmup=warmup, shape=settings.lr_scheduler_type, floor=0.0)
            ),
            main=MAIN,
            seed=config.run.seed,
            device=device,
            folder=folder / "checkpoints",
            note=note,
        )
        self.kept = EpochWeights(folder, recent=settings.average_epochs)
        self.tokens_per_epoch = sum(len(pair.target) for pair in pairs)

    def go(self, stop: Stop) -> TranslationOutcome | None:
        """Train to the end, from the last checkpoint where there is one, and put the weights that are kept into the
        model. None: someone asked to stop, all is saved."""
        done = self._go(stop)
        return None if done is None else self._finish(done)

    def _groups(self, epoch: int) -> list[list[int]]:
        return grouped(self.pairs, budget=self.config.training.tokens_per_batch, seed=self.config.run.seed, epoch=epoch)

    def _inputs(self, group: Sequence[int], number: int) -> dict[str, Any]:
        return {"batch": gather([self.pairs[place] for place in group], padding=self.padding).to(self.device)}

    def _scores(self, epoch: int) -> dict[str, float]:
        return self.judge(self.judging)

    def _keep(self, epoch: int) -> None:
        if self.best_epoch == epoch:
            self.kept.save_best(epoch, self.model)
        self.kept.save_recent(epoch, self.model)

    def _finish(self, done: int) -> TranslationOutcome:
        epoch, settings = done // self.per_epoch, self.config.training
        last = list(range(max(epoch - settings.average_epochs, 0) + 1, epoch + 1))
        best = self.history[self.best_epoch - 1]
        self.kept.put_average(last, self.model)
        average = self.judge(self.judging)
        self.note("average", epochs=last, **average)
        chosen, scores = last, average
        if settings.select == "best" and best[MAIN] > average[MAIN]:
            self.kept.put_best(self.best_epoch, self.model)
            chosen, scores = [self.best_epoch], best
        tokens = self.tokens_per_epoch * epoch
        return TranslationOutcome(scores, chosen, self.watch.used, done, tokens, self.history, average)

    def _speed(self, done: int) -> dict[str, float]:
        tokens = done / self.per_epoch * self.tokens_per_epoch
        return {"tokens_per_second": tokens / max(self.watch.used, 1e-9)}
