"""After each step of a run: what is said of it, and when the run is saved and evaluated.

Knows clocks and losses. Knows nothing of how a step is made.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from regard.errors import RegardError
from regard.training.loop import Step
from regard.training.schedule import parse_budget, parse_interval

if TYPE_CHECKING:
    from regard.training.pretraining.sections import ScheduleSection
    from regard.training.pretraining.trainer import Pretrainer

__all__ = ["Reporter", "seconds_left"]

LOG_EVERY = 1.0  # seconds


def seconds_left(schedule: ScheduleSection, *, steps: int, seconds: float) -> float:
    """How long a run goes on, of which so many steps are done in so many seconds: to the end of its budget, or as fast
    as before to its last step."""
    if schedule.budget:
        return max(parse_budget(schedule.budget) - seconds, 0.0)
    return seconds * max(schedule.max_steps - steps, 0) / steps


class Reporter:
    """After each step: says now and then how it goes, and sees to it that the run is saved and evaluated in time."""

    def __init__(self, run: Pretrainer, first: int, share: float) -> None:
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
            run.save(number)
            self.saved, self.saved_step = used, number
        if asks:
            run.note("evaluation", step=number, tokens=run.tokens, seconds=used, **run.evaluate())
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
            self.run.save(number)
        return number

    def _say(self, step: Step) -> None:
        run, number = self.run, step.number + 1
        means = run.world.mean(*(loss.item() for loss in step.losses.values()))  # waits for the device
        losses, norm = dict(zip(step.losses, means, strict=True)), step.norm.item()
        used = run.watch.used
        if not (math.isfinite(losses["loss"]) and math.isfinite(norm)):
            raise RegardError(
                f"the run has diverged: at step {number:,} the loss is {losses['loss']}, the gradient's norm {norm}. "
                "Lower optimizer.learning_rate, or make schedule.warmup_ratio longer; --resume would go on from "
                "the last checkpoint with the same settings"
            )
        speed = (run.tokens - self.tokens) / max(used - self.said, 1e-9)
        self.said, self.said_step, self.tokens = used, number, run.tokens
        run.note(
            "step",
            step=number,
            progress=step.progress,
            tokens=run.tokens,
            seconds=used,
            left=seconds_left(run.config.schedule, steps=number, seconds=used),
            tokens_per_second=speed,
            utilisation=speed * self.share,
            rate=step.rate,
            norm=norm,
            **{f"loss_{name}" if name != "loss" else name: value for name, value in losses.items()},
        )
