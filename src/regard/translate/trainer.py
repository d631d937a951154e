"""Training a translator: epochs of steps, BLEU after each, the best and the last weights kept, exactly resumable.

Knows the model, the optimizer and the order of pairs. Knows no files but its checkpoints; prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.device import half_type, wait
from regard.errors import RegardError
from regard.train import optimizer
from regard.train.checkpoint import Checkpoints
from regard.train.folder import Note
from regard.train.loop import Counter, Step, Stopwatch, train
from regard.train.schedule import factor, parse_interval
from regard.train.seeds import mixed
from regard.train.state import capture, restore
from regard.train.stopping import Stop
from regard.translate.batches import Batch, Encoded, gather, grouped
from regard.translate.build import Translating, next_scores
from regard.translate.config import Config
from regard.translate.weights import Kept

__all__ = ["Note", "Objective", "Outcome", "Trainer"]

LOG_EVERY = 1.0  # seconds
MAIN = "bleu"  # the score that decides


@dataclass(frozen=True)
class Outcome:
    """Scores of the model that is kept, which epochs it is made of, and what the run took."""

    scores: dict[str, float]
    epochs: list[int]
    seconds: float
    steps: int
    tokens: int  # of targets
    history: list[dict[str, float]] = field(default_factory=list)  # an epoch's scores
    average: dict[str, float] = field(default_factory=dict)  # the scores of the last epochs' average


class Objective(nn.Module):
    """What is minimised: the cross-entropy of each target token, a part of the target spread over all words."""

    def __init__(self, model: Translating, *, smoothing: float, padding: int) -> None:
        super().__init__()
        self.model, self.smoothing, self.padding = model, smoothing, padding

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        scores = next_scores(self.model, batch.source, batch.layout, batch.target)
        loss = F.cross_entropy(
            scores.float().flatten(0, 1),
            batch.target.flatten(),
            ignore_index=self.padding,
            label_smoothing=self.smoothing,
        )
        return {"loss": loss}


class Trainer:
    """`folder` is for checkpoints; `judge` lets the model translate what it does not learn from, and scores that."""

    def __init__(
        self,
        model: Translating,
        pairs: Sequence[Encoded],
        config: Config,
        *,
        padding: int,
        device: torch.device,
        folder: Path,
        judge: Callable[[], dict[str, float]],
        note: Note = lambda event, **values: None,
    ) -> None:
        self.model = model.to(device)
        self.pairs, self.config, self.padding = pairs, config, padding
        self.device, self.judge, self.note = device, judge, note
        settings = config.training
        self.objective = Objective(self.model, smoothing=settings.smoothing, padding=padding)
        self.optimizers = optimizer.build(
            self.model,
            name="adamw",
            rate=settings.rate,
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=settings.weight_decay,
        )
        self.checkpoints = Checkpoints(folder / "checkpoints", keep=1)
        self.kept = Kept(folder, recent=settings.average)
        self.per_epoch = len(self._groups(0))
        self.tokens_per_epoch = sum(len(pair.target) for pair in pairs)
        self.watch = Stopwatch()
        self.history: list[dict[str, float]] = []
        self.best_epoch = 0

    def go(self, stop: Stop) -> Outcome | None:
        """Train to the end, from the last checkpoint where there is one. None: someone asked to stop, all is saved."""
        done = self._resume()
        self.watch.start()
        saving = parse_interval(self.config.run.checkpoint_every)
        saved, saved_step, said = self.watch.used, done, self.watch.used
        if not self._over(done):
            for step in self._steps(done):
                done = step.number + 1
                used, whole = self.watch.used, done % self.per_epoch == 0
                if used - said >= LOG_EVERY or whole:
                    self._say(step)
                    said = used
                if whole:
                    self._judge(done // self.per_epoch)
                if stop.asked or whole or saving.due(steps=done - saved_step, seconds=used - saved):
                    self._save(done)
                    saved, saved_step = used, done
                if stop.asked:
                    return None
                if self._over(done):
                    break
        wait(self.device)
        self.watch.pause()
        return self._finish(done)

    def _groups(self, epoch: int) -> list[list[int]]:
        return grouped(self.pairs, budget=self.config.training.tokens, seed=self.config.run.seed, epoch=epoch)

    def _steps(self, first: int) -> Iterator[Step]:
        settings = self.config.training
        total = settings.epochs * self.per_epoch

        def at(progress: float) -> float:
            return settings.rate * factor(progress, warmup=settings.warmup / total, shape=settings.shape, floor=0.0)

        yield from train(
            self.objective,
            self._batches(first),
            self.optimizers,
            progress=Counter(total),
            rate=at,
            clip=settings.clip or math.inf,
            half=half_type(self.config.run.precision, self.device),
            first=first,
        )

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        """All that chance decides follows from the seed and the number of the epoch or step."""
        seed = self.config.run.seed
        for epoch in range(first // self.per_epoch, self.config.training.epochs):
            groups = self._groups(epoch)
            for place in range(first % self.per_epoch if epoch == first // self.per_epoch else 0, self.per_epoch):
                batch = gather([self.pairs[i] for i in groups[place]], padding=self.padding)
                torch.manual_seed(mixed(seed, epoch, place))
                yield [{"batch": batch.to(self.device)}]

    def _judge(self, epoch: int) -> None:
        """Score the model after an epoch, and keep its weights."""
        self.watch.pause()
        scores = self.judge()
        self.watch.start()
        self.note("evaluation", epoch=epoch, seconds=self.watch.used, **scores)
        self.history.append(scores)
        if not self.best_epoch or scores[MAIN] > self.history[self.best_epoch - 1][MAIN]:
            self.best_epoch = epoch
            self.kept.save_best(epoch, self.model)
        self.kept.save_recent(epoch, self.model)

    def _finish(self, done: int) -> Outcome:
        """Put the weights that are kept into the model."""
        epoch, settings = done // self.per_epoch, self.config.training
        last = list(range(max(epoch - settings.average, 0) + 1, epoch + 1))
        best = self.history[self.best_epoch - 1]
        self.kept.put_average(last, self.model)
        average = self.judge()
        self.note("average", epochs=last, **average)
        chosen, scores = last, average
        if settings.select == "best" and best[MAIN] > average[MAIN]:
            self.kept.put_best(self.best_epoch, self.model)
            chosen, scores = [self.best_epoch], best
        tokens = self.tokens_per_epoch * epoch
        return Outcome(scores, chosen, self.watch.used, done, tokens, self.history, average)

    def _over(self, done: int) -> bool:
        """Whether all epochs are done, or so many have brought nothing that no more is hoped for."""
        settings, epoch = self.config.training, done // self.per_epoch
        impatient = settings.patience and epoch and epoch - self.best_epoch >= settings.patience
        return epoch >= settings.epochs or bool(done % self.per_epoch == 0 and impatient)

    def _save(self, done: int) -> None:
        tensors, state = capture(self.model, self.optimizers)
        state |= {"history": self.history, "best": self.best_epoch, "seconds": self.watch.used}
        self.checkpoints.save(done, tensors, state)

    def _resume(self) -> int:
        found = self.checkpoints.latest()
        if found is None:
            return 0
        restore(self.model, self.optimizers, found.tensors, found.state)
        self.history, self.best_epoch = found.state["history"], found.state["best"]
        self.watch = Stopwatch(found.state["seconds"])
        self.note("resume", step=found.step, seconds=self.watch.used)
        return found.step

    def _say(self, step: Step) -> None:
        loss = step.losses["loss"].item()
        settings, done = self.config.training, step.number + 1
        if not math.isfinite(loss):
            raise RegardError(
                f"the run has diverged: at step {done:,} the loss is {loss}. Lower training.rate, which was "
                f"{settings.rate:g}, or make training.warmup longer"
            )
        self.note(
            "step",
            step=done,
            steps=settings.epochs * self.per_epoch,
            epoch=step.number // self.per_epoch + 1,
            seconds=self.watch.used,
            rate=step.rate,
            loss=loss,
            tokens_per_second=done / self.per_epoch * self.tokens_per_epoch / max(self.watch.used, 1e-9),
        )
