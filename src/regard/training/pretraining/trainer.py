"""The training inside a run: steps are planned, made, stopped and taken up again.

Knows models, optimizers, checkpoints and the processes it shares the work with. Knows no text files, no command line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.checkpoints import loading
from regard.device import autocast_dtype, synchronize
from regard.errors import InputError
from regard.training import optimizer
from regard.training.checkpoint import Checkpoints
from regard.training.loop import Clock, Counter, Step, Stopwatch, frugal, train
from regard.training.pretraining.build import new_model, objective_for, portions_for, started_model
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.dataset import Dataset, Said
from regard.training.pretraining.micro_batches import ahead
from regard.training.pretraining.plan import Plan, expected_loss, flops_per_token, peak_flops, seconds_per_step
from regard.training.pretraining.reporter import Reporter
from regard.training.pretraining.scores import held_out_scores
from regard.training.run_folder import Note, model_saved
from regard.training.schedule import factor, parse_budget
from regard.training.seeds import mixed
from regard.training.state import capture, restore
from regard.training.stopping import Stop, stopping
from regard.training.world import World

__all__ = ["CHECKPOINTS", "Pretrainer", "PretrainingResult"]

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class PretrainingResult:
    """A finished run: where the model lies, what it took, and how it does on text that was kept from it."""

    output: Path
    steps: int
    tokens: int
    seconds: float
    scores: Mapping[str, Mapping[str, float]]


class Pretrainer:
    """One process' part of a run."""

    def __init__(
        self,
        config: PretrainingConfig,
        material: Dataset,
        output: Path,
        *,
        world: World,
        device: torch.device,
        start: str,
        say: Said,
        note: Note,
    ) -> None:
        self.config, self.material, self.output = config, material, output
        self.world, self.device, self.say, self.note = world, device, say, note
        self.half = autocast_dtype(config.run.precision, device)
        torch.manual_seed(config.run.seed)
        tokenizer = material.tokenizer
        model = started_model(config, tokenizer, start) if start else new_model(config, tokenizer)
        self.model = model.to(device)
        if config.run.gradient_checkpointing:
            frugal(self.model)
        self.objective = objective_for(config, self.model, tokenizer, device)
        self.module = self._wrapped()
        self.optimizers = optimizer.build(
            self.model,
            name=config.optimizer.name,
            rate=config.optimizer.learning_rate,
            betas=config.optimizer.adam_betas,
            eps=config.optimizer.adam_epsilon,
            weight_decay=config.optimizer.weight_decay,
        )
        self.portions = portions_for(
            config, material, config.data.tokens_per_micro_batch or config.data.tokens_per_batch // world.size
        )
        self.parts = (
            config.data.tokens_per_batch // config.data.tokens_per_micro_batch
            if config.data.tokens_per_micro_batch
            else world.size
        )  # portions of a step
        if self.parts % world.size:
            raise InputError(
                f"{self.parts} forward passes a step (data.tokens_per_batch / data.tokens_per_micro_batch) cannot be "
                f"shared by {world.size} processes; choose data.tokens_per_micro_batch so that they can"
            )
        self.checkpoints = Checkpoints(output / CHECKPOINTS, keep=config.run.save_total_limit)
        self.watch = Stopwatch()
        self.row = 0  # where the next step begins to read
        self.tokens = 0

    def go(self, *, resume: bool) -> PretrainingResult:
        """Train to the end; with `resume` from the last checkpoint, where there is one."""
        resume = resume and self.checkpoints.any()  # before `_measure`, where all processes wait for each other
        seconds, peak = self._measure()
        # What a token a second takes of the highest speed of all devices.
        share = flops_per_token(self.config, self.material.tokenizer.size) / peak / self.world.size
        first = self._resume() if resume else self._plan(seconds, share)
        reporter = Reporter(self, first, share)
        with stopping() as stop:  # before, and once all is saved, a signal costs nothing and need not wait
            for step in self._train(first):
                reporter.step = step
                if self._stops(stop):
                    break
                reporter.after(step)
            synchronize(self.device)
            self.watch.pause()
            number = reporter.end()
            if self._stops(stop):
                self.say(f"stopped after step {number:,}; the same command with --resume goes on")
                stop.now()
        return self._finish(number)

    def _stops(self, stop: Stop) -> bool:
        """Whether any process was asked to stop: then all do, as it would."""
        asked = int(self.world.highest(float(stop.signal or 0)))
        if asked:
            stop.signal = asked
        return bool(asked)

    def _train(self, first: int) -> Iterator[Step]:
        schedule, rate = self.config.schedule, self.config.optimizer.learning_rate
        progress = Clock(parse_budget(schedule.budget), self.watch) if schedule.budget else Counter(schedule.max_steps)

        def at(done: float) -> float:
            return rate * factor(
                done, warmup=schedule.warmup_ratio, shape=schedule.lr_scheduler_type, floor=schedule.min_lr_ratio
            )

        self.watch.start()
        yield from train(
            self.module,
            self._batches(first),
            self.optimizers,
            progress=lambda number: self.world.agree(progress(number))[0],
            rate=at,
            clip=self.config.optimizer.max_grad_norm or math.inf,
            half=self.half,
            first=first,
        )

    def _batches(self, first: int) -> Iterator[list[dict[str, Tensor]]]:
        """This process' share of each step's portions. What is drawn by chance follows from seed, step and place."""
        seed, generator = self.config.run.seed, torch.Generator(device=self.device)
        source = ahead(self.portions.portions(first * self.parts, self.row), pin=self.device.type == "cuda")
        number = first
        try:
            while True:
                mine = []
                row = tokens = 0
                for place in range(self.parts):
                    portion = next(source)
                    row, tokens = portion.next, tokens + portion.tokens
                    if place % self.world.size == self.world.rank:
                        generator.manual_seed(mixed(seed, portion.number))
                        mine.append(self.objective.prepare(portion.to(self.device), generator))
                torch.manual_seed(mixed(seed, number, self.world.rank))
                # Told before the step, for whoever looks does so after it.
                self.row, self.tokens, number = row, self.tokens + tokens, number + 1
                yield mine
        finally:
            source.close()

    def _wrapped(self) -> nn.Module:
        module: nn.Module = self.objective
        compiled = self.config.run.compile
        # Of an ELMo there is nothing to compile: the recurrent layers are the libraries' own.
        wanted = self.device.type == "cuda" and self.config.model.family != "elmo"
        if compiled == "on" or (compiled == "auto" and wanted):
            # Replaying a recorded step spares the processor its hundreds of launches, which a small model waits for.
            # Where gradients are gathered over several parts, a replay would write over those of the last.
            replay = self.device.type == "cuda" and self.world.size == 1 and not self.config.data.tokens_per_micro_batch
            module.compile(mode="reduce-overhead" if replay else None)
        return DistributedDataParallel(module) if self.world.size > 1 else module

    def _measure(self) -> tuple[float, float]:
        """Seconds of a step and the device's highest speed: steps at rate 0, which are forgotten."""
        steps = train(
            self.module,
            self._batches(0),
            self.optimizers,
            progress=lambda number: 0.0,
            rate=lambda done: 0.0,
            half=self.half,
        )
        (seconds,) = self.world.agree(seconds_per_step(lambda: next(steps), self.device, world=self.world))
        steps.close()
        for each in self.optimizers:
            each.state.clear()
        self.row = self.tokens = 0
        return seconds, peak_flops(self.device, self.half or torch.float32)

    def _plan(self, seconds: float, share: float) -> int:
        """Say what follows from the speed; returns the number of the first step."""
        config, vocabulary = self.config, self.material.tokenizer.size
        batch = config.data.tokens_per_batch
        count = config.schedule.max_steps or max(int(parse_budget(config.schedule.budget) / seconds), 1)
        plan = Plan(
            tokens_per_second=batch / seconds,
            steps=count,
            seconds=count * seconds,
            tokens=count * batch,
            epochs=count * batch / self.material.text.tokens,
            utilisation=share * batch / seconds,
            loss=expected_loss(config, vocabulary, count * batch),
        )
        self.note("plan", **asdict(plan))
        return 0

    def _resume(self) -> int:
        found = self.checkpoints.latest(on_damaged=lambda what: self.say(f"passed over: {what}"))
        assert found is not None
        if found.state["text"] != self.material.digest:
            raise InputError(
                f"{self.output} was trained on another text: resume with the same --corpus and, where it was given, "
                "--heldout"
            )
        restore(self.model, self.optimizers, found.tensors, found.state)
        self.row, self.tokens = found.state["row"], found.state["tokens"]
        self.watch = Stopwatch(found.state["seconds"])
        self.note("resume", step=found.step, tokens=self.tokens, seconds=self.watch.used)
        return found.step

    def save(self, number: int) -> None:
        place = {"row": self.row, "tokens": self.tokens, "seconds": self.watch.used, "text": self.material.digest}

        def save() -> None:
            tensors, state = capture(self.model, self.optimizers)
            self.checkpoints.save(number, tensors, state | place)
            self.note("checkpoint", step=number)

        self.world.first_does(save)

    def evaluate(self) -> dict[str, dict[str, float]]:
        """The held-out scores, computed in the precision of the training; the first process' work."""
        if not self.world.first:
            return {}
        with torch.autocast(self.device.type, self.half) if self.half else nullcontext():
            return held_out_scores(self.model, self.config, self.material)

    def _finish(self, number: int) -> PretrainingResult:
        scores = self.evaluate()
        self.world.first_does(lambda: loading.save(self.model.eval(), self.output, self.material.tokenizer))
        with model_saved(self.output):
            text = self.material.digest
            self.note("end", steps=number, tokens=self.tokens, seconds=self.watch.used, text=text, **scores)
        return PretrainingResult(self.output, number, self.tokens, self.watch.used, scores)
