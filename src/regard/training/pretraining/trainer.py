"""Pretrains a model: measures the speed, plans the run, trains on micro-batches, evaluates and saves the model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from pydantic import computed_field
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.data.prefetch import prefetch
from regard.device import autocast_dtype
from regard.errors import InputError
from regard.events import Note
from regard.models.family import can
from regard.nn.layer import layers_of
from regard.render.result import Result, Table
from regard.training.checkpoint import Checkpoints, TrainingCheckpoint
from regard.training.events import Evaluated, Events, Finished, PretrainingPlan, describe_scores
from regard.training.loop import StepProgress, TimeProgress, derive_seed, enable_gradient_checkpointing, train
from regard.training.old_trainer import Trainer
from regard.training.optimizer import build_optimizers
from regard.training.parallel import ShardedModel, blank_copy, choose_parallel, replicate
from regard.training.pretraining.build import new_model, pretrained_model
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.pretraining.plan import expected_loss, peak_flops, seconds_per_step
from regard.training.settings import learning_rate_factor, parse_budget, parse_interval
from regard.training.stopping import Stop
from regard.training.world import World
from regard.wording import duration

CHECKPOINTS = "checkpoints"


class PretrainingResult(Result):
    """A finished run: the model folder, the cost, and the scores on held-out text."""

    output: str
    steps: int
    tokens: int
    seconds: float
    scores: dict[str, dict[str, float | int]]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    def to_text(self) -> str:
        lines = [f"{self.output}: {self.steps:,} steps, {self.tokens:,} tokens in {duration(self.seconds)}"]
        return "\n".join([*lines, *describe_scores(self.scores)])

    def to_table(self) -> Table:
        rows = [
            [name, score["loss"], score.get("accuracy"), score.get("perplexity")] for name, score in self.scores.items()
        ]
        return ["objective", "loss", "accuracy", "perplexity"], rows


class Pretrainer(Trainer[bool]):
    """One process's part of a run. `start` names a model to continue from; empty: new weights.

    A budget counts from `begin`, a time of `time.perf_counter`; the learning rate schedule has what is left of it.
    """

    remedy = (
        "Lower optimizer.learning_rate, or use a larger schedule.warmup_ratio; --resume would continue from the last "
        "checkpoint with the same settings"
    )

    def __init__(
        self,
        config: PretrainingConfig,
        dataset: PretrainingDataset,
        output: Path,
        *,
        world: World,
        device: torch.device,
        start: str,
        begin: float,
    ) -> None:
        self.config, self.dataset, self.output, self.begin = config, dataset, output, begin
        self.training_seconds = 0.0  # with a budget: what is left of it at the first step
        torch.manual_seed(config.run.seed)
        tokenizer, chosen, schedule = dataset.tokenizer, config.optimizer, config.schedule
        model = pretrained_model(config, tokenizer, start) if start else new_model(config, tokenizer)
        self.parallel, self._parallel_note = choose_parallel(
            config.run.parallel, model, optimizer=chosen.name, world=world, device=device
        )
        blank = blank_copy(model) if self.parallel == "fsdp" else None
        if blank is None:
            model = model.to(device)
        if config.run.gradient_checkpointing:
            enable_gradient_checkpointing(model)
        self.objective_class = objective_class(config)
        self.preparation = self.objective_class.from_config(config, model, tokenizer, device)
        self._compile(world, device)
        objective: nn.Module = self.preparation
        sharded = None
        if blank is not None:
            dtype = autocast_dtype(config.run.precision, device)
            sharded = ShardedModel(model, objective, blank, world=world, device=device, dtype=dtype)
        elif world.size > 1:
            objective = replicate(objective)
        super().__init__(
            model,
            objective,
            build_optimizers(
                model,
                name=chosen.name,
                learning_rate=chosen.learning_rate,
                betas=chosen.adam_betas,
                eps=chosen.adam_epsilon,
                weight_decay=chosen.weight_decay,
            ),
            learning_rate=lambda done: (
                chosen.learning_rate
                * learning_rate_factor(
                    done,
                    warmup=schedule.warmup_ratio,
                    scheduler=schedule.lr_scheduler_type,
                    min_ratio=schedule.min_lr_ratio,
                )
            ),
            max_grad_norm=chosen.max_grad_norm,
            run=config.run,
            checkpoints=Checkpoints(output / CHECKPOINTS, keep=config.run.save_total_limit),
            device=device,
            world=world,
            sharded=sharded,
        )
        batch, micro = config.data.tokens_per_batch, config.data.tokens_per_micro_batch
        self.micro_batches = self.objective_class.micro_batches(config, dataset, micro or batch // world.size)
        self.micro_batches_per_step = batch // micro if micro else world.size
        if self.micro_batches_per_step % world.size:
            raise InputError(
                f"{self.micro_batches_per_step} forward passes per step (data.tokens_per_batch / "
                f"data.tokens_per_micro_batch) cannot be shared by {world.size} processes; choose another "
                "data.tokens_per_micro_batch"
            )
        self._evaluating = parse_interval(config.run.evaluate_every)
        self._evaluated_step, self._evaluated = 0, 0.0
        self.next_row = 0
        self.tokens = self._logged_tokens = 0
        self._mfu_per_speed = 0.0  # MFU of one token per second

    def pretrain(self, *, resume: bool) -> Events[PretrainingResult]:
        """Train to the end; with `resume` from the newest checkpoint, if there is one."""
        assert self.checkpoints is not None
        if self._parallel_note:
            yield Note(message=self._parallel_note)
        resume = resume and self.checkpoints.any()  # before the measurement, in which all processes take part
        yield Note(message="measuring the speed of a step")
        seconds, peak = self._measure()
        flops = self.objective_class.flops_per_token(self.config, self.dataset.tokenizer.size)
        self._mfu_per_speed = flops / peak / self.world.size
        if not (resume and (yield from self._resume())):
            self._divide_budget()
            yield self._plan(seconds)
        # A resumed run is evaluated at the same steps as one that was never interrupted.
        self._evaluated_step = self.step - self.step % (self._evaluating.steps or 1)
        self._evaluated, self._logged_tokens = self.stopwatch.elapsed, self.tokens
        yield from self.run_interruptible()  # signals need not be deferred before, nor when everything is saved
        return (yield from self._finish())

    def run(self, stop: Stop) -> Events[bool | None]:
        return (yield from self._train(stop)) or None

    def _progress(self) -> StepProgress | TimeProgress:
        schedule = self.config.schedule
        if schedule.budget:
            return TimeProgress(self.training_seconds, self.stopwatch)
        return StepProgress(schedule.max_steps)

    def _batches(self, first: int) -> Iterator[list[dict[str, Tensor]]]:
        """This process's share of the micro-batches of each step."""
        seed, generator = self.config.run.seed, torch.Generator(device=self.device)
        stream = self.micro_batches.stream(first * self.micro_batches_per_step, self.next_row)
        if self.device.type == "cuda":
            stream = (batch.pinned() for batch in stream)
        source = prefetch(stream)
        step = first
        try:
            while True:
                mine = []
                row = tokens = 0
                for index in range(self.micro_batches_per_step):
                    batch = next(source)
                    row, tokens = batch.next_row, tokens + batch.tokens
                    if index % self.world.size == self.world.rank:
                        generator.manual_seed(derive_seed(seed, batch.number))
                        mine.append(self.preparation.prepare(batch.to(self.device), generator))
                torch.manual_seed(derive_seed(seed, step, self.world.rank))
                # Updated before the step, because they are read after it.
                self.next_row, self.tokens, step = row, self.tokens + tokens, step + 1
                yield mine
        finally:
            source.close()

    def _compile(self, world: World, device: torch.device) -> None:
        mode = self.config.run.compile
        # Recurrent layers are library kernels, which there is nothing to compile in.
        auto = device.type == "cuda" and not can(self.preparation.model, "recurrent")
        if mode == "off" or (mode == "auto" and not auto):
            return
        if self.parallel == "fsdp":  # between layers the processes send one another parameters
            for layer in layers_of(self.preparation):
                layer.compile()
            return
        # CUDA graphs save hundreds of kernel launches per step, which dominate the time of a small model. With
        # gradient accumulation a replay would overwrite the gradients of the previous micro-batch.
        graphs = device.type == "cuda" and world.size == 1 and not self.config.data.tokens_per_micro_batch
        self.preparation.compile(mode="reduce-overhead" if graphs else None)

    def _measure(self) -> tuple[float, float]:
        """Seconds per step and the device's peak FLOPS, from steps at learning rate 0 that are discarded."""
        steps = train(
            self.objective,
            self._batches(0),
            self.optimizers,
            progress=lambda step: 0.0,
            learning_rate=lambda done: 0.0,
            autocast=self.autocast,
        )
        (seconds,) = self.world.broadcast(seconds_per_step(lambda: next(steps), self.device, world=self.world))
        steps.close()
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.next_row = self.tokens = 0
        return seconds, peak_flops(self.device, self.autocast or torch.float32)

    def _divide_budget(self) -> None:
        """Leave to the training what the preparation has left of the budget."""
        if budget := self.config.schedule.budget:
            spent = time.perf_counter() - self.begin
            (self.training_seconds,) = self.world.broadcast(parse_budget(budget) - spent)
            if self.training_seconds <= 0:
                raise InputError(
                    f"the budget of {budget} is used up before the first step: vocabulary, tokens and measurement took "
                    f"{duration(spent)}. They are kept in {self.output}: run the same command again, or give a larger "
                    "--budget"
                )

    def _plan(self, seconds: float) -> PretrainingPlan:
        config, batch = self.config, self.config.data.tokens_per_batch
        steps = config.schedule.max_steps or max(int(self.training_seconds / seconds), 1)
        return PretrainingPlan(
            seconds_per_step=seconds,
            preparation=time.perf_counter() - self.begin,
            tokens_per_second=batch / seconds,
            steps=steps,
            seconds=steps * seconds,
            tokens=steps * batch,
            epochs=steps * batch / self.dataset.text.tokens,
            mfu=self._mfu_per_speed * batch / seconds,
            expected_loss=expected_loss(config, self.dataset.tokenizer.size, steps * batch),
        )

    def _position(self) -> dict[str, Any]:
        position = {"row": self.next_row, "tokens": self.tokens, "text": self.dataset.digest}
        return position | ({"training_seconds": self.training_seconds} if self.training_seconds else {})

    def _restore_position(self, checkpoint: TrainingCheckpoint) -> None:
        if checkpoint.state["text"] != self.dataset.digest:
            raise InputError(
                f"{self.output} was trained on another text: resume with the same --corpus and --heldout, if it was "
                "given"
            )
        self.next_row, self.tokens = checkpoint.state["row"], checkpoint.state["tokens"]
        if budget := self.config.schedule.budget:  # earlier versions gave all of it to the training
            self.training_seconds = checkpoint.state.get("training_seconds", parse_budget(budget))

    def _step_details(self, seconds: float) -> dict[str, Any]:
        speed = (self.tokens - self._logged_tokens) / max(seconds - self._logged, 1e-9)
        self._logged_tokens = self.tokens
        schedule = self.config.schedule
        if schedule.budget:
            left = max(self.training_seconds - seconds, 0.0)
        else:
            left = seconds * max(schedule.max_steps - self.step, 0) / self.step
        return {
            "tokens": self.tokens,
            "tokens_per_second": speed,
            "mfu": speed * self._mfu_per_speed,
            "seconds_left": left,
        }

    def _evaluation_due(self) -> bool:
        steps, seconds = self.step - self._evaluated_step, self.stopwatch.elapsed - self._evaluated
        return self._evaluating.due(steps=steps, seconds=seconds)

    def _evaluate(self) -> Events[None]:
        elapsed = self.stopwatch.elapsed
        yield Evaluated(step=self.step, tokens=self.tokens, seconds=elapsed, scores=self._scores())
        self._evaluated, self._evaluated_step = elapsed, self.step

    def _scores(self, model: Any = None) -> dict[str, dict[str, float]]:
        """Held-out scores, in the precision of the training; only the main process computes them."""
        model = self.whole_model() if model is None else model
        if not self.world.is_main:
            return {}
        with torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext():
            return self.objective_class.scores(model, self.config, self.dataset)

    def _finish(self) -> Events[PretrainingResult]:
        cost: dict[str, Any] = {"steps": self.step, "tokens": self.tokens, "seconds": self.stopwatch.elapsed}
        model = self.whole_model()
        yield Note(message="evaluating on the held-out text")
        scores = self._scores(model)
        with self.world.main_only() as is_main:
            if is_main:
                for folder, one in self.objective_class.trained_models(model.eval()).items():
                    loading.save(one, self.output / folder, self.dataset.tokenizer)
        yield Finished(scores=scores, text_digest=self.dataset.digest, **cost)
        return PretrainingResult(output=str(self.output), scores=scores, **cost)
