"""The shared trainer: steps, events, evaluation, checkpoints, interruption, early stopping and bit-for-bit resume.

`Trainer` is the base of pretraining; `EpochTrainer`, for a fixed data set, is the base of fine-tuning and translation.
They write checkpoints only and print nothing.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.device import autocast_dtype, synchronize
from regard.errors import RegardError
from regard.events import Event, Note
from regard.training import trainer
from regard.training.callbacks import Callbacks
from regard.training.checkpoint import Checkpoints, TrainingCheckpoint, capture, copy_rows, restore
from regard.training.events import (
    CheckpointSaved,
    Evaluated,
    EvaluationProgress,
    Events,
    Interrupted,
    Resumed,
    StepFinished,
)
from regard.training.loop import (
    AdversarialPerturbation,
    Step,
    StepProgress,
    Stopwatch,
    TimeProgress,
    derive_seed,
    train,
)
from regard.training.old_settings import OldRunSection
from regard.training.parallel import ShardedModel
from regard.training.settings import parse_interval
from regard.training.stopping import Stop, stopping
from regard.training.world import World

BEST = "best."
R = TypeVar("R")


class Trainer(ABC, Generic[R]):
    """Runs the training loop. `learning_rate` maps progress, 0 to 1, to the rate; `objective` computes the losses.

    With `sharded`, each process has a part of the model, which is in the objective too.
    """

    perturbation: AdversarialPerturbation | None = None
    remedy: str  # for a run that has diverged
    saves_after_evaluation = False  # in addition to the checkpoints of the interval

    def __init__(
        self,
        model: nn.Module,
        objective: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        learning_rate: Callable[[float], float],
        max_grad_norm: float,
        run: OldRunSection,
        checkpoints: Checkpoints | None,
        device: torch.device,
        world: World | None = None,
        sharded: ShardedModel | None = None,
    ) -> None:
        self.sharded = sharded
        self.model, self.objective, self.optimizers = model, objective, optimizers
        self._learning_rate, self._max_grad_norm = learning_rate, max_grad_norm or math.inf
        self._saving = parse_interval(run.checkpoint_every)
        self.checkpoints, self.device = checkpoints, device
        self.autocast = autocast_dtype(run.precision, device)
        self.world = world or World()
        self.stopwatch = Stopwatch()
        self.step = 0  # finished steps
        self._logged_step = self._saved_step = 0
        self._logged = self._saved = 0.0  # seconds

    @abstractmethod
    def run(self, stop: Stop) -> Events[R | None]:
        """Train to the end, from the newest checkpoint if there is one. None: interrupted, with everything saved."""

    def run_interruptible(self) -> Events[R]:
        """Run with deferred signals: on Ctrl-C or SIGTERM the state is saved, and then the signal is delivered."""
        with stopping() as stop:
            result = yield from self.run(stop)
            if result is None:
                yield Interrupted(step=self.step)
                stop.deliver()
        assert result is not None
        return result

    @abstractmethod
    def _progress(self) -> StepProgress | TimeProgress: ...

    @abstractmethod
    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        """The batches from step `first` on. All randomness follows from the seed and the step."""

    @abstractmethod
    def _evaluation_due(self) -> bool:
        """Whether the model is evaluated after the step that was just made."""

    @abstractmethod
    def _evaluate(self) -> Events[None]: ...

    @abstractmethod
    def _position(self) -> dict[str, Any]:
        """The state beside model, optimizers and time that a checkpoint needs, as JSON."""

    @abstractmethod
    def _restore_position(self, checkpoint: TrainingCheckpoint) -> None: ...

    @abstractmethod
    def _step_details(self, seconds: float) -> dict[str, Any]:
        """More fields of a `StepFinished` event."""

    def _count_step(self, step: Step) -> None:
        """Called after each step, without waiting for the device."""

    def _combine_processes(self) -> None:
        """Called in all processes before a save: make values that each process counts for itself equal in all."""

    def _is_over(self) -> bool:
        """Whether training ends before the progress says so."""
        return False

    def _train(self, stop: Stop) -> Events[bool]:
        """Train to the end; returns False if it was interrupted. In both cases everything is saved."""
        self._logged_step = self._saved_step = self.step
        self._logged = self._saved = self.stopwatch.elapsed
        self.stopwatch.start()
        interrupted, last = False, None
        for step in () if self._is_over() else self._steps(self.step):
            self.step, last = step.number + 1, step
            self._count_step(step)
            elapsed = self.stopwatch.elapsed
            log, save, evaluate = self.world.broadcast(
                float(elapsed - self._logged >= trainer.LOG_EVERY),
                float(self._saving.due(steps=self.step - self._saved_step, seconds=elapsed - self._saved)),
                float(self._evaluation_due()),
            )
            if log or save or evaluate:  # losses are checked before saving: the last checkpoint of a run is good
                yield self._log(step)
            if save or evaluate:
                self.stopwatch.pause()
                if evaluate:
                    yield from self._evaluate()
                if save or (evaluate and self.saves_after_evaluation):
                    yield from self._save()
                self.world.barrier()
                self.stopwatch.start()
            interrupted = self._interrupted(stop)
            if interrupted or self._is_over():
                break
        synchronize(self.device)
        self.stopwatch.pause()
        if last is not None and self._logged_step != self.step:
            yield self._log(last)
        if self._saved_step != self.step:
            yield from self._save()
        return not interrupted

    def _interrupted(self, stop: Stop) -> bool:
        """Whether any process was asked to stop: then all do."""
        if number := int(self.world.max(float(stop.signal or 0))):
            stop.signal = number
        return bool(number)

    def _steps(self, first: int) -> Iterator[Step]:
        progress = self._progress()
        return train(
            self.objective,
            self._batches(first),
            self.optimizers,
            progress=lambda step: self.world.broadcast(progress(step))[0],
            learning_rate=self._learning_rate,
            max_grad_norm=self._max_grad_norm,
            autocast=self.autocast,
            perturbation=self.perturbation,
            first=first,
        )

    def _log(self, step: Step) -> StepFinished:
        means = self.world.mean(*(loss.item() for loss in step.losses.values()))  # waits for the device
        losses, norm = dict(zip(step.losses, means, strict=True)), step.grad_norm.item()
        loss, elapsed = losses.pop("loss"), self.stopwatch.elapsed
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise RegardError(
                f"the run has diverged: at step {self.step:,} the loss is {loss}, the gradient norm {norm} and the "
                f"learning rate {step.learning_rate:g}. {self.remedy}"
            )
        details = self._step_details(elapsed)
        self._logged, self._logged_step = elapsed, self.step
        return StepFinished(
            step=self.step,
            seconds=elapsed,
            loss=loss,
            losses=losses,
            learning_rate=step.learning_rate,
            progress=step.progress,
            grad_norm=norm,
            **details,
        )

    def whole_model(self) -> Any:
        """The model, in the main process with all of its parameters; all processes take part."""
        if self.sharded is None:
            return self.model
        whole = self.sharded.gather()
        return self.model if whole is None else whole

    def _save(self) -> Events[None]:
        self._combine_processes()
        if self.checkpoints is not None and self.sharded is not None:
            self.checkpoints.save_shards(self.step, *self._state(), self.world)
            yield CheckpointSaved(step=self.step)
        elif self.checkpoints is not None:
            with self.world.main_only() as is_main:
                if is_main:
                    self.checkpoints.save(self.step, *self._state())
                    yield CheckpointSaved(step=self.step)
        self._saved, self._saved_step = self.stopwatch.elapsed, self.step

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The arguments of `Checkpoints.save`."""
        tensors, state = capture(self.model, self.optimizers)
        return tensors | self._extra_tensors(), state | self._position() | {"seconds": self.stopwatch.elapsed}

    def _extra_tensors(self) -> dict[str, Tensor]:
        return {}

    def _resume(self) -> Events[bool]:
        """Restore the newest intact checkpoint, if there is one."""
        damaged: list[str] = []
        found = None
        with self.world.main_only() as is_main:  # all files are hashed once, not once per process
            if is_main and self.checkpoints is not None:
                found = self.checkpoints.latest(on_damaged=damaged.append)
        for problem in damaged:
            yield Note(message=f"skipped a damaged checkpoint: {problem}")
        step = self.world.broadcast_json(None if found is None else found.step)
        if step is None or self.checkpoints is None:
            return False
        found = found or self.checkpoints.read(step)
        self._restore_position(found)
        own = {name: tensor for name, tensor in found.tensors.items() if not name.startswith(BEST)}
        restore(self.model, self.optimizers, own, found.state)
        self.step = found.step
        self.stopwatch = Stopwatch(found.state["seconds"])
        tokens = found.state.get("tokens")
        yield Resumed(step=found.step, seconds=self.stopwatch.elapsed, tokens=tokens)
        return True


class EpochTrainer(Trainer[R]):
    """Trains for at most `num_epochs` epochs of `steps_per_epoch` steps and evaluates after each.

    The best epoch has the highest score `main_score`; without a `main_score` it is the last one. Training stops early
    after `patience` epochs without a better one (0: never), or when a callback says so. Checkpoints go to `folder`, if
    there is one.
    """

    remedy = "Lower training.learning_rate, or use a longer warmup, in another --output if this one has a checkpoint"
    saves_after_evaluation = True
    keeps_last_of_equal = False  # of epochs with the same score; else the first

    def __init__(
        self,
        model: nn.Module,
        objective: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        num_epochs: int,
        patience: int,
        steps_per_epoch: int,
        main_score: str | None,
        seed: int,
        folder: Path | None,
        callbacks: Callbacks | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model, objective, optimizers, checkpoints=None if folder is None else Checkpoints(folder), **options
        )
        self._patience = patience
        self.steps_per_epoch, self.steps = steps_per_epoch, num_epochs * steps_per_epoch
        self.main_score, self.seed = main_score, seed
        self.callbacks = callbacks or Callbacks()
        self.history: list[dict[str, float]] = []
        self.losses: list[float] = []  # the mean training loss of each epoch
        self._loss_sum = torch.zeros((), device=self.device)  # over the steps of the current epoch
        self.best_weights: dict[str, Tensor] = {}  # of the best epoch, if they are kept in memory
        self.best_epoch = 0
        self._progress_reported = -math.inf

    @abstractmethod
    def _epoch_batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """The indices of the examples of each batch; the same for the same epoch."""

    @abstractmethod
    def _inputs(self, indices: Sequence[int], step: int) -> dict[str, Any]:
        """The objective's inputs for the batch of a step, counted from 0."""

    @abstractmethod
    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        """The scores of the model after an epoch; empty if it is not evaluated."""

    @abstractmethod
    def _keep_weights(self, epoch: int) -> None:
        """Keep the weights of an evaluated epoch, according to `best_epoch`."""

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.step // self.steps_per_epoch

    def _evaluation_progress(self, done: int, total: int) -> Iterator[Event]:
        """The progress of the evaluation that is running, at most once a second; `total` is 0 if it is unknown."""
        if (now := time.monotonic()) - self._progress_reported >= trainer.LOG_EVERY or done == total:
            self._progress_reported = now
            yield EvaluationProgress(epoch=len(self.history) + 1, done=done, total=total)

    def _progress(self) -> StepProgress | TimeProgress:
        return StepProgress(self.steps)

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        batches: Sequence[Sequence[int]] = ()
        for step in range(first, self.steps):
            epoch, index = divmod(step, self.steps_per_epoch)
            if not index or not batches:
                batches = self._epoch_batches(epoch)
            inputs = self._inputs(batches[index], step)
            process = [self.world.rank] if self.world.size > 1 else []  # each has its own dropout
            torch.manual_seed(derive_seed(self.seed, epoch, index, *process))
            yield [inputs]

    def _evaluation_due(self) -> bool:
        return self.step % self.steps_per_epoch == 0

    def _combine_processes(self) -> None:
        if self.world.size > 1:
            self._loss_sum.fill_(self.world.mean(self._loss_sum.item())[0])

    def _evaluate(self) -> Events[None]:
        self._combine_processes()
        self.losses.append(self._loss_sum.item() / self.steps_per_epoch)
        self._loss_sum = torch.zeros_like(self._loss_sum)
        scores = yield from self._scores(self.epoch)
        if scores:
            elapsed, loss = self.stopwatch.elapsed, self.losses[-1]
            yield Evaluated(epoch=self.epoch, seconds=elapsed, scores=scores, train_loss=loss)
        self.history.append(scores)
        main = self.main_score
        best = self.history[self.best_epoch - 1] if self.best_epoch else {}
        if main is None or not best or scores[main] > best[main] - self.keeps_last_of_equal * 1e-9:
            self.best_epoch = self.epoch
        self._keep_weights(self.epoch)

    def _count_step(self, step: Step) -> None:
        self._loss_sum += step.losses["loss"]

    def _is_over(self) -> bool:
        """Whether all epochs are done, or early stopping applies."""
        if self.step >= self.steps or not self.epoch or self.step % self.steps_per_epoch:
            return self.step >= self.steps
        (stopped,) = self.world.broadcast(float(self.callbacks.stop))
        return bool(stopped) or 0 < self._patience <= self.epoch - self.best_epoch

    def _position(self) -> dict[str, Any]:
        position = {"history": self.history, "best": self.best_epoch}
        return position | {"losses": self.losses, "loss_sum": self._loss_sum.item()}

    def _extra_tensors(self) -> dict[str, Tensor]:
        return {BEST + name: tensor for name, tensor in self.best_weights.items()}

    def _restore_position(self, checkpoint: TrainingCheckpoint) -> None:
        live = dict(self.model.named_parameters())
        self.best_weights = {}
        for stored, tensor in checkpoint.tensors.items():
            name = stored.removeprefix(BEST)
            if stored.startswith(BEST) and name in live and live[name].shape == tensor.shape:  # else `restore` objects
                self.best_weights[name] = copy_rows(torch.empty_like(live[name].detach()), tensor)
        state = checkpoint.state
        self.history, self.best_epoch = state["history"], state["best"]
        self.losses = state.get("losses", [])  # earlier versions did not save them
        self._loss_sum.fill_(state.get("loss_sum", 0.0))

    def _step_details(self, seconds: float) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "epoch": (self.step - 1) // self.steps_per_epoch + 1,
            "seconds_left": seconds * (self.steps - self.step) / self.step,
        }
