"""A pretraining run from text files to a model folder: prepared, planned, trained, evaluated, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    config.toml    the settings, all of them
    events.jsonl   what happened, a line an event
    vocabulary/ corpus/ heldout/   what the text was made into
    checkpoints/   the state of the run between two steps
    config.json model.safetensors tokenizer.json ...   the model, once it is finished
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard import loading
from regard.corpus import Progress as Built
from regard.disk import atomic_write
from regard.errors import InputError, RegardError
from regard.models.gpt import Gpt
from regard.pretrain import evaluate
from regard.pretrain.build import half_type, new_model, objective_for, portions_for, started_model
from regard.pretrain.config import Config
from regard.pretrain.objectives import masking_for
from regard.pretrain.plan import Plan, expected_loss, flops_per_token, peak_flops, seconds_per_step
from regard.pretrain.portions import ahead
from regard.pretrain.prepare import Material, Said, open_material, prepare
from regard.train import optimizer
from regard.train.checkpoint import Checkpoints
from regard.train.events import Events
from regard.train.loop import Clock, Counter, Step, Stopwatch, frugal, train
from regard.train.schedule import factor, parse_budget, parse_interval
from regard.train.state import capture, restore
from regard.train.stopping import Stop, stopping
from regard.train.world import World, joined
from regard.unfinished import locked

__all__ = ["Result", "pretrain"]

CONFIG, EVENTS, CHECKPOINTS = "config.toml", "events.jsonl", "checkpoints"
LOG_EVERY = 1.0  # seconds


class Note(Protocol):
    """Writes an event down."""

    def __call__(self, event: str, **values: object) -> None: ...


@dataclass(frozen=True)
class Result:
    """A finished run: where the model lies, what it took, and how it does on text that was kept from it."""

    output: Path
    steps: int
    tokens: int
    seconds: float
    scores: Mapping[str, Mapping[str, float]]


def pretrain(
    config: Config,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: Sequence[str] = (),
    start: str = "",
    resume: bool = False,
    device: torch.device,
    say: Said = lambda text: None,
    on_event: Callable[[Mapping[str, object]], None] = lambda event: None,
    on_built: Callable[[Built], None] | None = None,
) -> Result:
    """Train a new model, or the one named by `start`, on text. `resume` goes on with the run in `output`."""
    if bool(config.schedule.steps) == bool(config.schedule.budget):
        raise InputError(
            "how long to train? give a budget such as --budget 20min, or --set schedule.steps=N, one of them"
        )
    with ExitStack() as stack:
        world = stack.enter_context(joined())
        say = say if world.first else lambda text: None

        def begin() -> None:
            _open(output, config, resume=resume)
            if start:
                loading.find(start)  # a wrong name should not be found after hours
            stack.enter_context(locked(output))
            prepare(config, sources, output, held_out=held_out, say=say, on_progress=on_built)
            atomic_write(output / CONFIG, config.toml().encode())

        world.first_does(begin)
        material = open_material(config, sources, output, held_out=bool(held_out))
        events = stack.enter_context(Events(output / EVENTS)) if world.first else None

        def note(event: str, **values: object) -> None:
            if events is not None:
                on_event(events.add(event, **values))

        run = _Run(config, material, output, world=world, device=world.device(device), start=start, say=say, note=note)
        _refuse_short(config, material, given=bool(held_out))
        return run.go(resume=resume)


def _open(output: Path, config: Config, *, resume: bool) -> None:
    """Refuse a folder that cannot be written or gone on with, before any work."""
    saved = output / CONFIG
    begun = saved.is_file() and Checkpoints(output / CHECKPOINTS).any()
    if begun and not resume:
        raise InputError(f"{output} holds a run that was begun: go on with --resume, or choose another --output")
    if resume and not begun:
        raise InputError(f"{output} holds no run to resume: it has no checkpoint; leave --resume out to begin one")
    if begun:
        before = Config.read(saved, family=config.model.family)
        if differences := before.differences(config):
            raise InputError(
                f"{output} was begun with other settings: {'; '.join(differences)}. "
                "Resume with those, or choose another --output"
            )
    elif (output / "config.json").exists():
        raise InputError(f"{output} holds a model, which this run would write over; choose another --output")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}; choose another --output") from None


def _refuse_short(config: Config, material: Material, *, given: bool) -> None:
    """Find before the training, not behind it, that the text to evaluate on is too short for its questions."""
    text, tokenizer, length = material.held_out, material.tokenizer, config.data.length
    try:
        if config.model.family == "bert":
            evaluate.blanked(text, tokenizer, length=length, rows=1)
        if config.objective.pairs == "next":
            evaluate.next_pairs(text, tokenizer, length=length, count=2)
    except InputError as error:
        raise error if given else InputError(f"{error}; or name a text to evaluate on with --heldout") from None


class _Run:
    """One process' part of a run."""

    def __init__(
        self,
        config: Config,
        material: Material,
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
        self.half = half_type(config, device)
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
            rate=config.optimizer.rate,
            betas=config.optimizer.betas,
            eps=config.optimizer.eps,
            weight_decay=config.optimizer.weight_decay,
        )
        self.portions = portions_for(config, material, config.data.micro or config.data.batch // world.size)
        self.parts = config.data.batch // config.data.micro if config.data.micro else world.size  # portions of a step
        if self.parts % world.size:
            raise InputError(
                f"{self.parts} forward passes a step (data.batch / data.micro) cannot be shared by {world.size} "
                "processes; choose data.micro so that they can"
            )
        self.checkpoints = Checkpoints(output / CHECKPOINTS, keep=config.run.keep)
        self.watch = Stopwatch()
        self.row = 0  # where the next step begins to read
        self.tokens = 0

    def go(self, *, resume: bool) -> Result:
        seconds, peak = self._measure()
        first = self._resume() if resume else self._plan(seconds, peak)
        share = flops_per_token(self.config, self.material.tokenizer.size) / peak / self.world.size
        reporter = _Reporter(self, first, share)
        with stopping() as stop:  # before, and once all is saved, a signal costs nothing and need not wait
            for step in self._train(first):
                reporter.step = step
                if self._stops(stop):
                    break
                reporter.after(step)
            self._wait()
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
        schedule, rate = self.config.schedule, self.config.optimizer.rate
        progress = Clock(parse_budget(schedule.budget), self.watch) if schedule.budget else Counter(schedule.steps)

        def at(done: float) -> float:
            return rate * factor(done, warmup=schedule.warmup, shape=schedule.shape, floor=schedule.floor)

        self.watch.start()
        yield from train(
            self.module,
            self._batches(first),
            self.optimizers,
            progress=lambda number: self.world.agree(progress(number))[0],
            rate=at,
            clip=self.config.optimizer.clip or math.inf,
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
                        generator.manual_seed(_mixed(seed, portion.number))
                        mine.append(self.objective.prepare(portion.to(self.device), generator))
                torch.manual_seed(_mixed(seed, number, self.world.rank))
                # Told before the step, for whoever looks does so after it.
                self.row, self.tokens, number = row, self.tokens + tokens, number + 1
                yield mine
        finally:
            source.close()

    def _wrapped(self) -> nn.Module:
        module: nn.Module = self.objective
        compiled = self.config.run.compile
        if compiled == "on" or (compiled == "auto" and self.device.type == "cuda"):
            # Replaying a recorded step spares the processor its hundreds of launches, which a small model waits for.
            # Where gradients are gathered over several parts, a replay would write over those of the last.
            replay = self.device.type == "cuda" and self.world.size == 1 and not self.config.data.micro
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

    def _plan(self, seconds: float, peak: float) -> int:
        """Say what follows from the speed; returns the number of the first step."""
        config, vocabulary = self.config, self.material.tokenizer.size
        batch = config.data.batch
        count = config.schedule.steps or max(int(parse_budget(config.schedule.budget) / seconds), 1)
        plan = Plan(
            tokens_per_second=batch / seconds,
            steps=count,
            seconds=count * seconds,
            tokens=count * batch,
            epochs=count * batch / self.material.text.tokens,
            utilisation=flops_per_token(config, vocabulary) * batch / seconds / peak / self.world.size,
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

    def _save(self, number: int) -> None:
        place = {"row": self.row, "tokens": self.tokens, "seconds": self.watch.used, "text": self.material.digest}

        def save() -> None:
            tensors, state = capture(self.model, self.optimizers)
            self.checkpoints.save(number, tensors, state | place)
            self.note("checkpoint", step=number)

        self.world.first_does(save)

    def _evaluate(self) -> dict[str, dict[str, float]]:
        if not self.world.first:
            return {}
        length, tokenizer, text = self.config.data.length, self.material.tokenizer, self.material.held_out
        if isinstance(self.model, Gpt):
            found = evaluate.next_words(self.model, text, length=length)
            return {"words": {"loss": found.loss, "perplexity": found.perplexity, "count": found.count}}
        asked = masking_for(tokenizer, rate=self.config.objective.mask_rate, replace=(1.0, 0.0, 0.0))
        scores = {"words": asdict(evaluate.words(self.model, asked, text, tokenizer, length=length))}
        if self.config.objective.pairs == "next":
            scores["pairs"] = asdict(evaluate.pairs(self.model, text, tokenizer, length=length))
        return scores

    def _finish(self, number: int) -> Result:
        scores = self._evaluate()
        self.world.first_does(lambda: loading.save(self.model.eval(), self.output, self.material.tokenizer))
        self.note("end", steps=number, tokens=self.tokens, seconds=self.watch.used, **scores)
        return Result(self.output, number, self.tokens, self.watch.used, scores)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class _Reporter:
    """After each step: says now and then how it goes, and sees to it that the run is saved and evaluated in time."""

    def __init__(self, run: _Run, first: int, share: float) -> None:
        self.run, self.share = run, share  # of the device's highest speed, times tokens a second
        self.saving = parse_interval(run.config.run.checkpoint_every)
        self.asking = parse_interval(run.config.run.evaluate_every)
        self.saved = self.asked = self.said = run.watch.used
        # Resumed, a run is evaluated at the same steps as one that was never stopped.
        self.asked_step = first - first % (self.asking.steps or 1)
        self.saved_step = self.said_step = first
        self.tokens = run.tokens
        self.step: Step | None = None  # the last one

    def after(self, step: Step) -> None:
        run, number, used = self.run, step.number + 1, self.run.watch.used
        (said, saves, asks) = run.world.agree(
            float(used - self.said >= LOG_EVERY),
            float(self.saving.due(steps=number - self.saved_step, seconds=used - self.saved)),
            float(self.asking.due(steps=number - self.asked_step, seconds=used - self.asked)),
        )
        if said or saves:  # what is saved was looked at: a run that has diverged leaves the last good checkpoint
            self._say(step)
        if not (saves or asks):
            return
        run.watch.pause()
        if saves:
            run._save(number)
            self.saved, self.saved_step = used, number
        if asks:
            run.note("evaluation", step=number, tokens=run.tokens, seconds=used, **run._evaluate())
            self.asked, self.asked_step = used, number
        run.world.wait()
        run.watch.start()

    def end(self) -> int:
        """See to the last step; returns how many were done."""
        if self.step is None:
            return self.saved_step
        number = self.step.number + 1
        if number != self.said_step:
            self._say(self.step)
        if number != self.saved_step:
            self.run._save(number)
        return number

    def _say(self, step: Step) -> None:
        run, number = self.run, step.number + 1
        means = run.world.mean(*(loss.item() for loss in step.losses.values()))  # waits for the device
        losses, norm = dict(zip(step.losses, means, strict=True)), step.norm.item()
        used = run.watch.used
        if not (math.isfinite(losses["loss"]) and math.isfinite(norm)):
            raise RegardError(
                f"the run has diverged: at step {number:,} the loss is {losses['loss']}, the gradient's norm {norm}. "
                "Lower optimizer.rate, or make schedule.warmup longer; --resume would go on from the last checkpoint "
                "with the same settings"
            )
        speed = (run.tokens - self.tokens) / max(used - self.said, 1e-9)
        self.said, self.said_step, self.tokens = used, number, run.tokens
        run.note(
            "step",
            step=number,
            progress=step.progress,
            tokens=run.tokens,
            seconds=used,
            tokens_per_second=speed,
            utilisation=speed * self.share,
            rate=step.rate,
            norm=norm,
            **{f"loss_{name}" if name != "loss" else name: value for name, value in losses.items()},
        )


def _mixed(*numbers: int) -> int:
    """One seed of several numbers, all of which matter."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1
