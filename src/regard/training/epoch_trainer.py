"""Training in epochs: steps, a judgement after each epoch, checkpoints, and what is told on the way.

Knows the order of the work, when it is over, and how to go on after an interruption, bit for bit. Knows no data and no
score's meaning. Knows no files but its checkpoints; prints nothing.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.device import autocast_dtype, synchronize
from regard.errors import RegardError
from regard.settings import Precision
from regard.training.adversary import Adversary
from regard.training.checkpoint import Checkpoints
from regard.training.loop import Counter, Step, Stopwatch, train
from regard.training.run_folder import Note
from regard.training.schedule import parse_interval
from regard.training.seeds import mixed
from regard.training.state import capture, restore
from regard.training.stopping import Stop

__all__ = ["Epochs"]

LOG_EVERY = 1.0  # seconds
BEST = "best."


class Training(Protocol):
    """At most so many epochs, fewer when `patience` of them in a row were not better; 0 is no limit of either."""

    num_epochs: int
    max_grad_norm: float
    early_stopping_patience: int


class Run(Protocol):
    precision: Precision
    checkpoint_every: str


class Epochs(ABC):
    """`rate` gives the learning rate at each part of the run, 0 to 1. The epoch with the highest score `main` is the
    best; without a `main`, the last one. `folder` is for checkpoints; without one there are none."""

    adversary: Adversary | None = None

    def __init__(
        self,
        model: nn.Module,
        objective: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        training: Training,
        run: Run,
        per_epoch: int,
        rate: Callable[[float], float],
        main: str | None,
        seed: int,
        device: torch.device,
        folder: Path | None,
        note: Note,
    ) -> None:
        self.model, self.objective, self.optimizers = model, objective, optimizers
        self._training, self._run, self.per_epoch, self._rate = training, run, per_epoch, rate
        self.steps = training.num_epochs * per_epoch
        self.main, self.seed, self.device, self.note = main, seed, device, note
        self.checkpoints = None if folder is None else Checkpoints(folder)
        self.watch, self._said = Stopwatch(), -math.inf
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}  # the weights of the best epoch, where they are kept in memory
        self.best_epoch = 0

    @abstractmethod
    def _groups(self, epoch: int) -> Sequence[Sequence[int]]:
        """What of the data makes each batch of an epoch; the same for the same epoch."""

    @abstractmethod
    def _inputs(self, group: Sequence[int], number: int) -> dict[str, Any]:
        """What the objective takes in step `number`, from 0."""

    @abstractmethod
    def _scores(self, epoch: int) -> dict[str, float]:
        """How good the model is after an epoch; nothing where that is not looked at."""

    @abstractmethod
    def _keep(self, epoch: int) -> None:
        """Keep the weights of an epoch that is scored, as `best_epoch` says."""

    def judging(self, done: int, of: int) -> None:
        """Tell how far the judgement is that goes on now; of 0: that it begins."""
        if (now := time.monotonic()) - self._said >= LOG_EVERY or done == of:
            self._said = now
            self.note("judging", epoch=len(self.history) + 1, done=done, of=of)

    def _go(self, stop: Stop) -> int | None:
        """Train to the end, from the last checkpoint where there is one: the number of steps that are done then.

        None: someone asked to stop, and all is saved.
        """
        done = self._resume()
        self.watch.start()
        saving = parse_interval(self._run.checkpoint_every)
        saved, saved_step, said = self.watch.used, done, self.watch.used
        for step in () if self._over(done) else self._steps(done):
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
        synchronize(self.device)
        self.watch.pause()
        return done

    def _steps(self, first: int) -> Iterator[Step]:
        return train(
            self.objective,
            self._batches(first),
            self.optimizers,
            progress=Counter(self.steps),
            rate=self._rate,
            clip=self._training.max_grad_norm or math.inf,
            half=autocast_dtype(self._run.precision, self.device),
            adversary=self.adversary,
            first=first,
        )

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        """All that chance decides follows from the seed and the number of the epoch or step."""
        groups: Sequence[Sequence[int]] = ()
        for number in range(first, self.steps):
            epoch, place = divmod(number, self.per_epoch)
            if not place or not groups:
                groups = self._groups(epoch)
            inputs = self._inputs(groups[place], number)
            torch.manual_seed(mixed(self.seed, epoch, place))
            yield [inputs]

    def _judge(self, epoch: int) -> None:
        self.watch.pause()
        scores = self._scores(epoch)
        self.watch.start()
        if scores:
            self.note("evaluation", epoch=epoch, seconds=self.watch.used, **scores)
        self.history.append(scores)
        if self.main is None or not self.best_epoch or scores[self.main] > self.history[self.best_epoch - 1][self.main]:
            self.best_epoch = epoch
        self._keep(epoch)

    def _over(self, done: int) -> bool:
        """Whether all epochs are done, or so many have brought nothing that no more is hoped for."""
        epoch, inside = divmod(done, self.per_epoch)
        patience = self._training.early_stopping_patience
        return done >= self.steps or bool(patience and epoch and not inside and epoch - self.best_epoch >= patience)

    def _save(self, done: int) -> None:
        if self.checkpoints is None:
            return
        tensors, state = capture(self.model, self.optimizers)
        tensors |= {BEST + name: tensor for name, tensor in self.best.items()}
        state |= {"history": self.history, "best": self.best_epoch, "seconds": self.watch.used}
        self.checkpoints.save(done, tensors, state)

    def _resume(self) -> int:
        if self.checkpoints is None:
            return 0
        found = self.checkpoints.latest(on_damaged=lambda problem: self.note("damaged checkpoint", problem=problem))
        if found is None:
            return 0
        best = {name: tensor for name, tensor in found.tensors.items() if name.startswith(BEST)}
        rest = {name: tensor for name, tensor in found.tensors.items() if name not in best}
        restore(self.model, self.optimizers, rest, found.state)
        self.best = {name.removeprefix(BEST): tensor.to(self.device) for name, tensor in best.items()}
        self.history, self.best_epoch = found.state["history"], found.state["best"]
        self.watch = Stopwatch(found.state["seconds"])
        self.note("resume", step=found.step, seconds=self.watch.used)
        return found.step

    def _say(self, step: Step) -> None:
        loss, done = step.losses["loss"].item(), step.number + 1
        if not math.isfinite(loss):
            raise RegardError(
                f"the run has diverged: at step {done:,} the loss is {loss}. The rate was {step.rate:g}: "
                "lower training.learning_rate, or make training.warmup_ratio longer"
            )
        self.note(
            "step",
            step=done,
            steps=self.steps,
            epoch=step.number // self.per_epoch + 1,
            seconds=self.watch.used,
            rate=step.rate,
            loss=loss,
            **self._speed(done),
        )

    def _speed(self, done: int) -> dict[str, float]:
        """What else is told of a step."""
        return {}
