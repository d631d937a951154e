"""One seed of a fine-tuning run: epochs of steps, a score after each, the best weights kept, exactly resumable.

Knows the model, the optimizer and the order of items. Knows no files but its checkpoints; prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.device import half_type, wait
from regard.errors import RegardError
from regard.finetune.config import Config
from regard.finetune.levels import levels, slower, thaw
from regard.finetune.start import Objective
from regard.models import Elmo, Vit
from regard.nn import Attention, Stack
from regard.nn.block import FeedForward
from regard.tasks.base import Item, Task
from regard.tasks.model import Tuned
from regard.tasks.pictures import Seen
from regard.train import optimizer
from regard.train.adversary import Adversary
from regard.train.checkpoint import Checkpoints
from regard.train.folder import Note
from regard.train.loop import Counter, Step, Stopwatch, train
from regard.train.schedule import factor, parse_interval
from regard.train.seeds import mixed
from regard.train.state import capture, restore
from regard.train.stopping import Stop

__all__ = ["Note", "Outcome", "Trainer", "best_rate"]

LOG_EVERY = 1.0  # seconds
BEST = "best."


@dataclass(frozen=True)
class Outcome:
    """A seed's run: scores after each epoch, which of them was kept, what it took."""

    seed: int
    scores: dict[str, float]
    epoch: int
    seconds: float
    steps: int
    history: list[dict[str, float]] = field(default_factory=list)


def best_rate(width: int) -> float:
    """What suits a width: 1e-4 for 384, 5e-5 for 768, 3.75e-5 for 1,024."""
    return min(1e-4 * 384 / width, 3e-4)


class Trainer:
    """`folder` is for checkpoints; without one there are none. `judge` scores the model on data that it does not learn
    from; without one the last epoch is kept."""

    def __init__(
        self,
        model: Tuned | Seen,
        task: Task[Any],
        items: Sequence[Item],
        config: Config,
        *,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        judge: Callable[[Tuned | Seen], dict[str, float]] | None = None,
        objective: Callable[[Tuned | Seen], nn.Module] | None = None,
        note: Note = lambda event, **values: None,
    ) -> None:
        self.task, self.items, self.config, self.seed = task, items, config, seed
        self.device, self.judge, self.note = device, judge, note
        self.model = prepared(model, config).to(device)
        self.objective = objective(self.model) if objective else Objective(self.model, task)
        settings = config.training
        # A new layer alone learns well at a larger rate, and so do LSTMs.
        faster = settings.frozen or isinstance(model.encoder, Elmo)
        self.rate = settings.rate or best_rate(model.encoder.config.width) * (10 if faster else 1)
        self.optimizers = optimizer.build(
            self.model,
            name="adamw" if settings.frozen else settings.optimizer,
            rate=self.rate,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
        )
        self.levels = levels(self.model, model.encoder.config.depth)  # of all that is to learn, now or later
        if settings.layer_decay < 1:
            slower(self.optimizers, self.levels, settings.layer_decay)
        self.checkpoints = None if folder is None else Checkpoints(folder, keep=1)
        self.per_epoch = -(-len(items) // settings.batch)
        self.watch = Stopwatch()
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}
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
                used = self.watch.used
                if used - said >= LOG_EVERY or done % self.per_epoch == 0:
                    self._say(step)
                    said = used
                if done % self.per_epoch == 0:
                    self._judge(done // self.per_epoch)
                if (
                    stop.asked
                    or done % self.per_epoch == 0
                    or saving.due(steps=done - saved_step, seconds=used - saved)
                ):
                    self._save(done)
                    saved, saved_step = used, done
                if stop.asked:
                    return None
                if self._over(done):
                    break
        wait(self.device)
        self.watch.pause()
        self._take_best()
        scores = self.history[self.best_epoch - 1]
        return Outcome(self.seed, scores, self.best_epoch, self.watch.used, done, self.history)

    def _steps(self, first: int) -> Iterator[Step]:
        settings = self.config.training
        half = half_type(self.config.run.precision, self.device)
        total = settings.epochs * self.per_epoch

        def at(progress: float) -> float:
            return self.rate * factor(progress, warmup=settings.warmup, shape="linear", floor=0.0)

        yield from train(
            self.objective,
            self._batches(first),
            self.optimizers,
            progress=Counter(total),
            rate=at,
            clip=settings.clip or math.inf,
            half=half,
            adversary=self._adversary(),
            first=first,
        )

    def _adversary(self) -> Adversary | None:
        """None where there are no words, or where they do not learn."""
        size, encoder = self.config.training.adversarial, self.model.encoder
        if not size or isinstance(encoder, Vit):
            return None
        words = encoder.get_parameter("embedding.weight" if isinstance(encoder, Elmo) else "embedding.tokens.weight")
        return Adversary(words, size) if words.requires_grad else None

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        """All that chance decides follows from the seed and the number of the epoch or step."""
        settings = self.config.training
        size, total = settings.batch, settings.epochs * self.per_epoch
        for epoch in range(first // self.per_epoch, self.config.training.epochs):
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.items))
            for place in range(first % self.per_epoch if epoch == first // self.per_epoch else 0, self.per_epoch):
                chosen = [self.items[i] for i in order[place * size : (place + 1) * size]]
                chosen.sort(key=self.model.length)  # rows of one length go through attention together
                torch.manual_seed(mixed(self.seed, epoch, place))
                if settings.unfreeze:
                    thaw(self.levels, (epoch * self.per_epoch + place) / total, settings.unfreeze)
                yield [{"inputs": self.model.gathered(chosen).to(self.device), "items": chosen}]

    def _judge(self, epoch: int) -> None:
        """Score the model after an epoch, where that decides something, and remember the best."""
        settings = self.config.training
        last = settings.select == "last" or self.judge is None
        scores: dict[str, float] = {}
        if self.judge is not None and (not last or epoch == settings.epochs):
            self.watch.pause()
            scores = self.judge(self.model)
            self.watch.start()
            self.note("evaluation", seed=self.seed, epoch=epoch, seconds=self.watch.used, **scores)
        self.history.append(scores)
        if last:
            self.best_epoch = epoch
        elif not self.best_epoch or scores[self.task.main] > self.history[self.best_epoch - 1][self.task.main]:
            self.best_epoch = epoch
            self.best = {name: tensor.clone() for name, tensor in self._learned().items()}

    def _learned(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p in self.levels}

    def _take_best(self) -> None:
        """Where no epoch was found to be better than the others, the last stays."""
        with torch.no_grad():
            for name, parameter in self._learned().items() if self.best else ():
                parameter.copy_(self.best[name])

    def _over(self, done: int) -> bool:
        """Whether all epochs are done, or so many have brought nothing that no more is hoped for."""
        settings, epoch = self.config.training, done // self.per_epoch
        patient = settings.patience and settings.select == "best" and epoch - self.best_epoch >= settings.patience
        return epoch >= settings.epochs or bool(done % self.per_epoch == 0 and epoch and patient)

    def _save(self, done: int) -> None:
        if self.checkpoints is None:
            return
        tensors, state = capture(self.model, self.optimizers)
        tensors |= {BEST + name: tensor for name, tensor in self.best.items()}
        state |= {"history": self.history, "best": self.best_epoch, "seconds": self.watch.used}
        self.checkpoints.save(done, tensors, state)

    def _resume(self) -> int:
        found = None if self.checkpoints is None else self.checkpoints.latest()
        if found is None:
            return 0
        best = {name: tensor for name, tensor in found.tensors.items() if name.startswith(BEST)}
        rest = {name: tensor for name, tensor in found.tensors.items() if name not in best}
        restore(self.model, self.optimizers, rest, found.state)
        self.best = {name.removeprefix(BEST): tensor.to(self.device) for name, tensor in best.items()}
        self.history, self.best_epoch = found.state["history"], found.state["best"]
        self.watch = Stopwatch(found.state["seconds"])
        self.note("resume", seed=self.seed, step=found.step, seconds=self.watch.used)
        return found.step

    def _say(self, step: Step) -> None:
        loss = step.losses["loss"].item()
        if not math.isfinite(loss):
            raise RegardError(
                f"the run has diverged: at step {step.number + 1:,} the loss is {loss}. Lower training.rate, which was "
                f"{self.rate:g}, or make training.warmup longer"
            )
        total = self.config.training.epochs * self.per_epoch
        self.note(
            "step",
            seed=self.seed,
            step=step.number + 1,
            steps=total,
            epoch=step.number // self.per_epoch + 1,
            seconds=self.watch.used,
            rate=step.rate,
            loss=loss,
        )


def prepared(model: Tuned | Seen, config: Config) -> Tuned | Seen:
    """The model with the settings' dropout, and with what is frozen kept from learning."""
    settings = config.training
    if settings.dropout >= 0:
        encoder: Any = model.encoder
        names = [name for name in ("dropout", "attention_dropout") if hasattr(encoder.config, name)]
        encoder.config = replace(encoder.config, **dict.fromkeys(names, settings.dropout))
        # Of the stack's end and inside the feed-forward networks, which none of these families has.
        unused = {id(part.dropout) for part in model.modules() if isinstance(part, Stack | FeedForward)}
        for module in model.modules():
            if isinstance(module, Attention):
                module.dropout = settings.dropout
            elif isinstance(module, nn.Dropout) and id(module) not in unused:
                module.p = settings.dropout
    if settings.frozen:
        model.encoder.requires_grad_(False)
        if isinstance(model, Seen) and model.encoder.classifier is not None:
            model.encoder.classifier.requires_grad_(True)
    return model
