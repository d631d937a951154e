"""Learning rate schedules, and durations and intervals as users write them: "20min", "1h30m", "500 steps".

Progress is a number from 0 to 1, whether a run is counted in steps or in seconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from regard.errors import InputError, check_choice

SchedulerType = Literal["linear", "cosine", "constant", "noam"]

WARMUP_START = 0.01  # the factor of the first step: at 0 it would learn nothing

NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"
SECONDS = re.compile(NUMBER)
PARTS = re.compile(rf"(?:{NUMBER}h)?(?:{NUMBER}(?:min|m))?(?:{NUMBER}s)?\s*")
STEPS = re.compile(r"\s*([0-9]{1,12})\s*steps?\s*")


def learning_rate_factor(progress: float, *, warmup: float, scheduler: SchedulerType, min_ratio: float = 0.0) -> float:
    """The factor of the peak learning rate at a `progress` of the run from 0 to 1.

    Step k of n, counted from 0, has progress k/n; with a time budget it is the elapsed share of the budget. During
    `warmup`, a share of the run, the factor rises linearly from 0.01 to 1. Then it falls to `min_ratio` at progress 1,
    linearly or as a half cosine, or stays 1 (constant). "noam" is the Transformer's schedule: it falls with
    1/sqrt(step) towards `min_ratio`.
    """
    check_choice("scheduler", scheduler, get_args(SchedulerType))
    if scheduler == "noam" and not warmup:
        raise InputError("the noam schedule depends on the warmup, and there is none; set a warmup above 0")
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup:
        return WARMUP_START + (1 - WARMUP_START) * progress / warmup
    if scheduler == "constant" or warmup >= 1:
        return 1.0
    if scheduler == "noam":
        return min_ratio + (1 - min_ratio) * math.sqrt(warmup / progress)
    done = (progress - warmup) / (1 - warmup)
    left = 1 - done if scheduler == "linear" else (1 + math.cos(math.pi * done)) / 2
    return min_ratio + (1 - min_ratio) * left


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
    """Every `steps` steps or `seconds` seconds; never if both are 0."""

    steps: int = 0
    seconds: float = 0.0

    def due(self, *, steps: int, seconds: float) -> bool:
        """Whether the interval is over, `steps` and `seconds` after the last time."""
        return 0 < self.steps <= steps or 0 < self.seconds <= seconds


def parse_interval(text: str) -> Interval:
    """An interval of a duration ("5min") or of steps ("500 steps"); an empty text means never."""
    if not text.strip():
        return Interval()
    if match := STEPS.fullmatch(text):
        if not int(match[1]):
            raise InputError(f"{text!r} is no interval; expected at least 1 step, or an empty text for never")
        return Interval(steps=int(match[1]))
    if _seconds(text) is None:
        raise InputError(f"{text!r} is no interval; expected a duration like 5min or 90s, or steps like '500 steps'")
    return Interval(seconds=parse_budget(text))


def _seconds(text: str) -> float | None:
    """None if the text is no duration."""
    if match := SECONDS.fullmatch(text):
        return float(match[1])
    match = PARTS.fullmatch(text)
    if not match or not text.strip():
        return None
    return sum(float(part or 0) * size for part, size in zip(match.groups(), (3600, 60, 1), strict=True))


def _is_interval(text: str) -> str:
    parse_interval(text)
    return text


IntervalSetting = Annotated[str, AfterValidator(_is_interval)]
