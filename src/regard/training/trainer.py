"""The trainer: everything that kinds of training have in common; what differs is a `Recipe`.

It owns the optimizers, the schedule and its length (epochs, steps or a time budget), accumulation of gradients,
prefetching, compilation, several processes (DDP, FSDP2), gradient checkpointing, checkpoints and bit-for-bit resuming,
early stopping, the choice of weights (best, last or average) and events. It writes checkpoints only, prints nothing,
and is not meant to be subclassed: a capability belongs here, a difference to a recipe.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.data.prefetch import prefetch
from regard.device import autocast_dtype, synchronize
from regard.errors import InputError, RegardError
from regard.events import Note
from regard.nn.layer import layers_of
from regard.training.checkpoint import Checkpoints, TrainingCheckpoint, capture, copy_rows, restore
from regard.training.distributed.parallel import ShardedModel, blank_copy, choose_parallel
from regard.training.distributed.shards import local_part
from regard.training.distributed.world import World
from regard.training.events import (
    AverageEvaluated,
    CheckpointSaved,
    Evaluated,
    EvaluationProgress,
    Events,
    Interrupted,
    Resumed,
    StepFinished,
)
from regard.training.loop import Step, Stopwatch, derive_seed, enable_gradient_checkpointing, train
from regard.training.optimizer import build_optimizers
from regard.training.recipe import Capability, Recipe, Scores, Share, TrainingOutcome
from regard.training.settings import learning_rate_factor, parse_budget, parse_interval
from regard.training.speed import Speed, peak_flops, seconds_per_step
from regard.training.stopping import Callbacks, Stop, stopping

LOG_EVERY = 1.0  # seconds
COMPILING_STEPS = 3  # a CUDA graph is recorded in the second step and used in the third
KEPT = "kept."  # the prefix of weights of finished epochs in a checkpoint
Weights = dict[str, Tensor]


@final
class Trainer:
    """Trains the model of a recipe, with checkpoints in `folder`, if there is one, in one process or several.

    Of epochs with a main score the best one is kept, or the average of the last ones, as the settings say. A callback
    that returns True ends the training after the next evaluation.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        seed: int | None = None,
        device: torch.device,
        folder: Path | None = None,
        callbacks: Callbacks | None = None,
        world: World | None = None,
    ) -> None:
        self.recipe, self.device, self.world = recipe, device, world or World()
        run = recipe.run
        self.seed = run.seed if seed is None else seed
        self._named: dict[str, Any] = {"seed": seed}  # where several are trained, events name theirs
        self.callbacks = callbacks or Callbacks()
        self.checkpoints = None if folder is None else Checkpoints(folder, keep=run.save_total_limit)
        refuse_capabilities(recipe, processes=self.world.size)
        size, accumulation = self.world.size, recipe.training.gradient_accumulation_steps
        self._share = Share(self.world.rank, size, size * accumulation)
        self._prepare_model()
        training = recipe.training
        self.steps = self._count_steps()
        self.training_seconds = parse_budget(training.budget) if training.budget else None
        warmup = training.warmup_steps / self.steps if training.warmup_steps and self.steps else training.warmup_ratio
        self._learning_rate = lambda done: (
            training.learning_rate
            * learning_rate_factor(
                done, warmup=warmup, scheduler=training.lr_scheduler_type, min_ratio=training.min_lr_ratio
            )
        )
        self._saving, self._evaluating = parse_interval(run.checkpoint_every), parse_interval(run.evaluate_every)
        self._selects = recipe.evaluates and training.select != "last"
        self._averages = recipe.evaluates and (training.average_epochs > 1 or training.select == "average")
        self.stopwatch = Stopwatch()
        self.step = self.tokens = 0  # finished steps, and what was read in them
        self.position: Any = None  # where the recipe's next batch begins
        self.history: list[dict[str, Any]] = []  # the scores of each evaluation, which is that of an epoch or interval
        self.losses: list[float] = []  # the mean training loss up to each of them
        self.best = 0  # the best evaluation, from 1
        self._kept: dict[int, Weights] = {}  # weights after evaluations, by number
        self._loss_sum = torch.zeros((), device=device)  # since the last evaluation
        self._evaluated_step = self._logged_step = self._saved_step = self._logged_tokens = 0
        self._evaluated = self._logged = self._saved = 0.0  # seconds
        self._progress_reported = -math.inf
        self._mfu_per_speed = 0.0  # MFU of one token per second

    def _prepare_model(self) -> None:
        recipe, device, world = self.recipe, self.device, self.world
        self.autocast = autocast_dtype(recipe.run.precision, device)
        model = recipe.build_model(self.seed)
        training = recipe.training
        self.parallel, self._parallel_note = choose_parallel(
            recipe.run.parallel, model, optimizer=training.optimizer, world=world, device=device
        )
        blank = blank_copy(model) if self.parallel == "fsdp" else None
        self.model = model if blank is not None else model.to(device)
        if recipe.run.gradient_checkpointing:
            enable_gradient_checkpointing(model)
        self.objective: nn.Module = recipe.objective(self.model, device)
        self.compiled = recipe.compiles(device)
        if self.compiled:
            self._compile()
        self.sharded = None
        if blank is not None:
            self.sharded = ShardedModel(
                self.model, self.objective, blank, world=world, device=device, dtype=self.autocast
            )
        self.layer_schedule = recipe.layer_schedule(self.model)  # after sharding, which makes other parameters
        if blank is None and world.size > 1:
            # Layers that are still frozen get no gradient.
            unused = self.layer_schedule is not None and self.layer_schedule.unfreeze > 0
            self.objective = DistributedDataParallel(self.objective, find_unused_parameters=unused)
        self.optimizers = build_optimizers(
            self.model,
            name=training.optimizer,
            learning_rate=training.learning_rate,
            betas=training.adam_betas,
            eps=training.adam_epsilon,
            weight_decay=training.weight_decay,
        )
        self._trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        if self.layer_schedule is not None:
            self.layer_schedule.configure(self.optimizers)
        self.perturbation = recipe.perturbation(self.model)

    def _compile(self) -> None:
        if self.parallel == "fsdp":  # between layers the processes send one another parameters
            for layer in layers_of(self.objective):
                layer.compile()
            return
        # CUDA graphs save hundreds of kernel launches per step, which dominate the time of a small model. With
        # gradient accumulation a replay would overwrite the gradients of the previous part of the batch.
        constant = self.recipe.constant_shapes
        graphs = self.device.type == "cuda" and constant and self._share.count == 1
        self.objective.compile(mode="reduce-overhead" if graphs else None, dynamic=False if constant else None)

    def _count_steps(self) -> int | None:
        """The number of steps; None if the length is a time."""
        training = self.recipe.training
        if training.budget or training.max_steps:
            return training.max_steps or None
        if self.recipe.steps_per_epoch is None:
            raise InputError("how long to train? set max_steps or a budget, one of them")
        return training.num_epochs * self.recipe.steps_per_epoch

    def train(self, stop: Stop | None = None) -> Events[TrainingOutcome]:
        """Train to the end, from the newest checkpoint if there is one.

        On Ctrl-C or SIGTERM the state is saved, and then the signal is delivered; a given `stop` replaces signals.
        """
        if self._parallel_note:
            yield Note(message=self._parallel_note)
        if self.layer_schedule is not None and self.steps is not None:
            rate = self.recipe.training.learning_rate
            scheduled = self.layer_schedule.event(self.optimizers, learning_rate=rate, steps=self.steps)
            yield scheduled.model_copy(update=self._named)
        speed = yield from self._measure()
        if not (yield from self._resume()):
            yield from self.recipe.plan(self, speed)
        with stopping() if stop is None else nullcontext(stop) as stop:
            if not (yield from self._train(stop)):
                yield Interrupted(step=self.step, **self._named)
                stop.deliver()
        return (yield from self._select())

    def _measure(self) -> Events[Speed | None]:
        """Measure the speed if the recipe plans with it; compile, so that a time budget is spent on training."""
        if self.recipe.flops_per_token is None:
            if self.compiled:
                with self.discarded_steps() as steps:
                    list(itertools.islice(steps, COMPILING_STEPS))
            return None
        yield Note(message="measuring the speed of a step")
        with self.discarded_steps() as steps:
            seconds = seconds_per_step(lambda: next(steps), self.device, world=self.world)
        peak = peak_flops(self.device, self.autocast or torch.float32)
        self._mfu_per_speed = self.recipe.flops_per_token / peak / self.world.size
        return Speed(self.world.broadcast(seconds)[0], self._mfu_per_speed)

    @contextmanager
    def discarded_steps(self) -> Iterator[Iterator[Step]]:
        """Steps at learning rate 0, which leave no trace."""
        steps = train(
            self.objective,
            self._batches(0),
            self.optimizers,
            progress=lambda step: 0.0,
            learning_rate=lambda done: 0.0,
            autocast=self.autocast,
        )
        yield steps
        steps.close()
        synchronize(self.device)
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.tokens, self.position = 0, None

    def _train(self, stop: Stop) -> Events[bool]:
        """Train to the end; returns False if it was interrupted. In both cases everything is saved."""
        self._logged_step = self._saved_step = self.step
        self._logged_tokens = self.tokens
        self._logged = self._saved = self.stopwatch.elapsed
        self.stopwatch.start()
        interrupted, last = False, None
        saves_after_evaluation = self.recipe.evaluates and self.recipe.steps_per_epoch is not None
        for step in () if self._is_over() else self._steps():
            self.step, last = step.number + 1, step
            self._loss_sum += step.losses["loss"]
            elapsed = self.stopwatch.elapsed
            log, save, evaluate = self.world.broadcast(
                float(elapsed - self._logged >= LOG_EVERY),
                float(self._saving.due(steps=self.step - self._saved_step, seconds=elapsed - self._saved)),
                float(self._evaluation_due(elapsed)),
            )
            if log or save or evaluate:  # losses are checked before saving: the last checkpoint of a run is good
                yield self._log(step)
            if save or evaluate:
                self.stopwatch.pause()
                if evaluate:
                    yield from self._evaluate()
                if save or (evaluate and saves_after_evaluation):
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

    def _steps(self) -> Iterator[Step]:
        return train(
            self.objective,
            self._batches(self.step),
            self.optimizers,
            progress=self._progress,
            learning_rate=self._learning_rate,
            max_grad_norm=self.recipe.training.max_grad_norm or math.inf,
            autocast=self.autocast,
            perturbation=self.perturbation,
            first=self.step,
        )

    def _progress(self, step: int) -> float:
        """The progress of the run before a step, the same in all processes."""
        if self.training_seconds is not None:
            progress = min(self.stopwatch.elapsed / self.training_seconds, 1.0)
        else:
            assert self.steps is not None
            progress = step / self.steps
        return self.world.broadcast(progress)[0]

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        """The inputs of this process's parts of each batch. All randomness follows from the seed and the step."""
        source = prefetch(self.recipe.batches(first, self.position, self._share))
        process = [self.world.rank] if self.world.size > 1 else []  # each has its own dropout
        try:
            for step, batch in enumerate(source, start=first):
                parts = [self.recipe.inputs(part, self.device) for part in batch.parts]
                if self.layer_schedule is not None:
                    self.layer_schedule.start_step(self._progress(step))
                number = divmod(step, self.recipe.steps_per_epoch) if self.recipe.steps_per_epoch else (step,)
                torch.manual_seed(derive_seed(self.seed, *number, *process))
                # Updated before the step, because they are read after it.
                self.tokens, self.position = self.tokens + batch.tokens, batch.position
                yield parts
        finally:
            source.close()

    def _evaluation_due(self, elapsed: float) -> bool:
        """Whether the model is evaluated after the step that was just made."""
        if self._evaluating.steps or self._evaluating.seconds or self.recipe.steps_per_epoch is None:
            return self._evaluating.due(steps=self.step - self._evaluated_step, seconds=elapsed - self._evaluated)
        return self.step % self.recipe.steps_per_epoch == 0

    def _is_over(self) -> bool:
        """Whether all steps are done, or the training stops early."""
        if self.steps is not None and self.step >= self.steps:
            return True
        if not self.history or self._evaluated_step != self.step:
            return False
        (stopped,) = self.world.broadcast(float(self.callbacks.stop))
        return bool(stopped) or 0 < self.recipe.training.early_stopping_patience <= len(self.history) - self.best

    def _interrupted(self, stop: Stop) -> bool:
        """Whether any process was asked to stop: then all do."""
        if number := int(self.world.max(float(stop.signal or 0))):
            stop.signal = number
        return bool(number)

    def _log(self, step: Step) -> StepFinished:
        means = self.world.mean(*(loss.item() for loss in step.losses.values()))  # waits for the device
        losses, norm = dict(zip(step.losses, means, strict=True)), step.grad_norm.item()
        loss, elapsed = losses.pop("loss"), self.stopwatch.elapsed
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise RegardError(
                f"the run has diverged: at step {self.step:,} the loss is {loss}, the gradient norm {norm} and the "
                f"learning rate {step.learning_rate:g}. {self.recipe.remedy}"
            )
        speed = (self.tokens - self._logged_tokens) / max(elapsed - self._logged, 1e-9)
        per_epoch = self.recipe.steps_per_epoch
        left = (self.steps or 0) - self.step
        self._logged, self._logged_step, self._logged_tokens = elapsed, self.step, self.tokens
        return StepFinished(
            **self._named,
            step=self.step,
            seconds=elapsed,
            loss=loss,
            losses=losses,
            learning_rate=step.learning_rate,
            progress=step.progress,
            grad_norm=norm,
            steps=self.steps if per_epoch else None,
            epoch=(self.step - 1) // per_epoch + 1 if per_epoch else None,
            tokens=self.tokens or None,
            tokens_per_second=speed if self.tokens else None,
            mfu=speed * self._mfu_per_speed if self._mfu_per_speed else None,
            seconds_left=(
                max(self.training_seconds - elapsed, 0.0) if self.training_seconds else elapsed * left / self.step
            ),
        )

    def _evaluate(self) -> Events[None]:
        """Evaluate after an epoch or interval, and keep the weights that may be chosen."""
        self._combine_processes()
        self.losses.append(self._loss_sum.item() / max(self.step - self._evaluated_step, 1))
        self._loss_sum = torch.zeros_like(self._loss_sum)
        scores = yield from self._scores(final=self.step == self.steps)
        elapsed, number = self.stopwatch.elapsed, len(self.history) + 1
        if scores and self._counts_epochs:
            yield self._evaluated_event(scores, epoch=number, train_loss=self.losses[-1])
        elif scores:
            yield self._evaluated_event(scores, step=self.step, tokens=self.tokens or None)
        self.history.append(scores)
        self._evaluated, self._evaluated_step = elapsed, self.step
        if self._is_better(scores):
            self.best = number
        averaged = range(number - self.recipe.training.average_epochs + 1, number + 1) if self._averages else ()
        wanted = {*averaged, *([self.best] if self._selects else [])}
        self._kept = {epoch: weights for epoch, weights in self._kept.items() if epoch in wanted}
        if number in wanted:
            self._kept[number] = {name: tensor.clone() for name, tensor in self._weights().items()}

    def _evaluated_event(self, scores: dict[str, Any], **values: Any) -> Evaluated:
        examples, seconds = self.recipe.dev_examples, self.stopwatch.elapsed
        return Evaluated(scores=scores, examples=examples, seconds=seconds, **self._named, **values)

    def _is_better(self, scores: Scores) -> bool:
        """Whether an evaluation beats the best one before it."""
        if not self._selects or not self.best or not scores:
            return True
        margin = 1e-9 if self.recipe.keeps_last_of_equal else 0.0
        return self.recipe.quality(scores) > self.recipe.quality(self.history[self.best - 1]) - margin

    @property
    def _counts_epochs(self) -> bool:
        """Whether evaluations are those of epochs."""
        return self.recipe.steps_per_epoch is not None and not self.recipe.run.evaluate_every.strip()

    def _scores(self, *, final: bool) -> Events[dict[str, Any]]:
        """The scores of the whole model, which the main process computes, in all processes."""
        if not self.recipe.evaluates:
            return {}
        model, scores = self.whole_model(), None
        with self.world.main_only() as is_main:
            if is_main:
                steps = self.recipe.evaluate(model, final=final)
                while scores is None:
                    try:
                        done, total = next(steps)
                    except StopIteration as end:
                        scores = dict(end.value)
                        break
                    if (now := time.monotonic()) - self._progress_reported >= LOG_EVERY or done == total:
                        self._progress_reported = now
                        epoch = len(self.history) + 1
                        yield EvaluationProgress(epoch=epoch, done=done, total=total, **self._named)
        found: dict[str, Any] = self.world.broadcast_json(scores)
        return found

    def _select(self) -> Events[TrainingOutcome]:
        """Load the weights that the settings choose; the last ones may not have been evaluated yet."""
        scores, epochs = (self.history[self.best - 1], [float(self.best)]) if self.best else ({}, [])
        chosen = self._kept.get(self.best)
        if self._evaluated_step != self.step or not scores:
            if self.recipe.steps_per_epoch is None:
                yield Note(message="evaluating on the held-out text")
            last = yield from self._scores(final=True)
            if last and self._counts_epochs:
                yield self._evaluated_event(last, step=self.step)
            if self._is_better(last):
                scores, epochs, chosen = last, [self.step / (self.recipe.steps_per_epoch or self.step or 1)], None
        average: dict[str, Any] = {}
        if self._averages and self.history:
            newest = range(max(len(self.history) - self.recipe.training.average_epochs, 0) + 1, len(self.history) + 1)
            before = {name: tensor.clone() for name, tensor in self._weights().items()} if chosen is None else chosen
            self._load(_mean([self._kept[number] for number in newest]))
            average = yield from self._scores(final=True)
            yield AverageEvaluated(epochs=list(newest), scores=average, **self._named)
            quality = self.recipe.quality
            if self.recipe.training.select == "best" and quality(scores) > quality(average):
                chosen = before
            else:
                scores, epochs, chosen = average, [float(number) for number in newest], None
        if chosen is not None:
            self._load(chosen)
        cost = self.stopwatch.elapsed, self.step, self.tokens
        return TrainingOutcome(scores, epochs, *cost, self.history, average, self.losses)

    def _weights(self) -> Weights:
        """The weights that are ever trained; the live ones."""
        return {name: p.detach() for name, p in self.model.named_parameters() if name in self._trained}

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self._weights().items():
            local_part(tensor).copy_(local_part(weights[name]))

    def whole_model(self) -> Any:
        """The model, in the main process with all of its parameters; all processes take part."""
        if self.sharded is None:
            return self.model
        whole = self.sharded.gather()
        return self.model if whole is None else whole

    def _combine_processes(self) -> None:
        """Make the sum of losses, which each process counts for itself, equal in all."""
        if self.world.size > 1:
            self._loss_sum.fill_(self.world.mean(self._loss_sum.item())[0])

    def _save(self) -> Events[None]:
        self._combine_processes()
        if self.checkpoints is not None and self.sharded is not None:
            self.checkpoints.save_shards(self.step, *self._state(), self.world)
            yield CheckpointSaved(step=self.step, **self._named)
        elif self.checkpoints is not None:
            with self.world.main_only() as is_main:
                if is_main:
                    self.checkpoints.save(self.step, *self._state())
                    yield CheckpointSaved(step=self.step, **self._named)
        self._saved, self._saved_step = self.stopwatch.elapsed, self.step

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The arguments of `Checkpoints.save`."""
        tensors, state = capture(self.model, self.optimizers)
        for number, weights in self._kept.items():
            tensors |= {f"{KEPT}{number}.{name}": tensor for name, tensor in weights.items()}
        return tensors, state | {
            "seconds": self.stopwatch.elapsed,
            "tokens": self.tokens,
            "position": self.position,
            "training_seconds": self.training_seconds,
            "history": self.history,
            "losses": self.losses,
            "loss_sum": self._loss_sum.item(),
            "best": self.best,
            "evaluated": [self._evaluated_step, self._evaluated],
        }

    def _resume(self) -> Events[bool]:
        """Restore the newest intact checkpoint, if there is one."""
        damaged: list[str] = []
        newest = None
        with self.world.main_only() as is_main:  # all files are hashed once, not once per process
            if is_main and self.checkpoints is not None:
                newest = self.checkpoints.latest(on_damaged=damaged.append)
        for problem in damaged:
            yield Note(message=f"skipped a damaged checkpoint: {problem}")
        step = self.world.broadcast_json(None if newest is None else newest.step)
        if step is None or self.checkpoints is None:
            return False
        self._restore(newest or self.checkpoints.read(step))
        yield Resumed(step=self.step, seconds=self.stopwatch.elapsed, tokens=self.tokens or None, **self._named)
        return True

    def _restore(self, checkpoint: TrainingCheckpoint) -> None:
        state = checkpoint.state
        if problem := self.recipe.other_data(state["position"]):
            raise InputError(problem)
        own = {name: tensor for name, tensor in checkpoint.tensors.items() if not name.startswith(KEPT)}
        restore(self.model, self.optimizers, own, state)
        live = self._weights()
        self._kept = {}
        for stored, tensor in checkpoint.tensors.items():
            if stored.startswith(KEPT):
                number, _, name = stored.removeprefix(KEPT).partition(".")
                self._kept.setdefault(int(number), {})[name] = copy_rows(torch.empty_like(live[name]), tensor)
        self.step, self.stopwatch = checkpoint.step, Stopwatch(state["seconds"])
        self.tokens, self.position, self.training_seconds = (
            state[key] for key in ("tokens", "position", "training_seconds")
        )
        self.history, self.losses, self.best = (state[key] for key in ("history", "losses", "best"))
        self._loss_sum.fill_(state["loss_sum"])
        self._evaluated_step, self._evaluated = state["evaluated"]


def refuse_capabilities(recipe: Recipe, *, processes: int) -> None:
    """InputError if the settings ask for something that the recipe refuses, with its reason."""
    training = recipe.training
    accumulates, endless = training.gradient_accumulation_steps > 1, training.budget or training.max_steps
    asked: dict[Capability, tuple[bool, str, str]] = {
        "processes": (processes > 1, f"{processes} processes", "run it without torchrun"),
        "gradient accumulation": (accumulates, "training.gradient_accumulation_steps", "leave it at 1"),
        "epochs": (not endless, "a number of epochs", "set max_steps or a budget"),
    }
    for capability, reason in recipe.refuses.items():
        is_asked, what, hint = asked[capability]
        if is_asked:
            raise InputError(f"{what} cannot be used here: {reason}; {hint}")


def _mean(weights: list[Weights]) -> Weights:
    """The mean of the weights of several epochs, computed in double precision."""
    total: Weights = {}
    for each in weights:
        for name, tensor in each.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: tensor / len(weights) for name, tensor in total.items()}
