"""How the learning rate goes over a run, and the durations a user writes: "20min", "1h30m", "500 steps".

Knows numbers and words only: progress is a number from 0 to 1, whether it counts steps or seconds. Sets no rate and
reads no clock.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from regard.errors import InputError, check_choice

__all__ = ["Every", "Interval", "Shape", "factor", "parse_budget", "parse_interval"]

Shape = Literal["linear", "cosine", "constant", "noam"]

START = 0.01  # where warm-up begins: a step at rate 0 would learn nothing

NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"
SECONDS = re.compile(NUMBER)
PARTS = re.compile(rf"(?:{NUMBER}h)?(?:{NUMBER}(?:min|m))?(?:{NUMBER}s)?\s*")
STEPS = re.compile(r"\s*([0-9]{1,12})\s*steps?\s*")


def factor(progress: float, *, warmup: float, shape: Shape, floor: float) -> float:
    """What the rate is multiplied by when `progress` of the run, 0 to 1, is done before the step.

    Step k of n, counted from 0, has progress k/n; in a run with a time budget it is seconds used / budget, and past its
    end the factor stays what it is at 1. Over the part `warmup` of the run the factor rises in a line from 0.01 to 1;
    then it falls to `floor` at progress 1, in a line or half a cosine, or stays 1 where the shape is constant.
    Noam's is the Transformer's: it falls with 1/sqrt(step), towards `floor`, and where it ends depends on the warm-up.
    """
    check_choice("shape", shape, get_args(Shape))
    if shape == "noam" and not warmup:
        raise InputError(
            "the shape noam falls as far as its warm-up is short, and there is none; set a warm-up above 0"
        )
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup:
        return START + (1 - START) * progress / warmup
    if shape == "constant" or warmup >= 1:
        return 1.0
    if shape == "noam":
        return floor + (1 - floor) * math.sqrt(warmup / progress)
    done = (progress - warmup) / (1 - warmup)
    left = 1 - done if shape == "linear" else (1 + math.cos(math.pi * done)) / 2
    return floor + (1 - floor) * left


def parse_budget(text: str) -> float:
    """Seconds of a duration: "20min", "90s", "1h30m", "0.5h"; a number alone counts seconds."""
    seconds = _seconds(text)
    if seconds is None:
        raise InputError(f"{text!r} is no duration; expected hours, minutes and seconds like 20min, 90s, 1h30m or 300")
    if not 0 < seconds < math.inf:
        raise InputError(f"a duration of {text!r} is {seconds:g} seconds; expected more than 0 and an end")
    return seconds


@dataclass(frozen=True)
class Interval:
    """How often something is done: every so many steps, or seconds; where both are 0, never."""

    steps: int = 0
    seconds: float = 0.0

    def due(self, *, steps: int, seconds: float) -> bool:
        """Whether it is time, so many steps and seconds after the last time."""
        return 0 < self.steps <= steps or 0 < self.seconds <= seconds


def parse_interval(text: str) -> Interval:
    """An interval of a duration ("5min") or of steps ("500 steps"); nothing at all is never."""
    if not text.strip():
        return Interval()
    if match := STEPS.fullmatch(text):
        if not int(match[1]):
            raise InputError(f"{text!r} is no interval; expected at least 1 step, or nothing at all for never")
        return Interval(steps=int(match[1]))
    if _seconds(text) is None:
        raise InputError(f"{text!r} is no interval; expected a duration like 5min or 90s, or steps like '500 steps'")
    return Interval(seconds=parse_budget(text))


def _seconds(text: str) -> float | None:
    """None where the text is no duration."""
    if match := SECONDS.fullmatch(text):
        return float(match[1])
    match = PARTS.fullmatch(text)
    if not match or not text.strip():
        return None
    return sum(float(part or 0) * size for part, size in zip(match.groups(), (3600, 60, 1), strict=True))


def _is_interval(text: str) -> str:
    parse_interval(text)
    return text


Every = Annotated[str, AfterValidator(_is_interval)]  # a setting that `parse_interval` reads
