"""Settings that all kinds of training share, and the former names of settings in saved run folders."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, Strict, model_validator

from regard.errors import InputError, check_choice
from regard.settings import Precision, SettingsSection

SchedulerType = Literal["linear", "cosine", "constant", "noam"]
Parallel = Literal["auto", "ddp", "fsdp"]
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
        raise InputError(
            f"{text!r} is not a duration; expected hours, minutes and seconds like 20min, 90s, 1h30m or 300"
        )
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
            raise InputError(f"{text!r} is not an interval; expected at least 1 step, or an empty text for never")
        return Interval(steps=int(match[1]))
    if _seconds(text) is None:
        raise InputError(
            f"{text!r} is not an interval; expected a duration like 5min or 90s, or steps like '500 steps'"
        )
    return Interval(seconds=parse_budget(text))


def _seconds(text: str) -> float | None:
    """None if the text is not a duration."""
    if match := SECONDS.fullmatch(text):
        return float(match[1])
    match = PARTS.fullmatch(text)
    if not match or not text.strip():
        return None
    return sum(float(part or 0) * size for part, size in zip(match.groups(), (3600, 60, 1), strict=True))


def _is_budget(text: str) -> str:
    if text:
        parse_budget(text)
    return text


def _is_interval(text: str) -> str:
    parse_interval(text)
    return text


IntervalSetting = Annotated[str, AfterValidator(_is_interval)]


# The settings of every kind of training, declared once; a kind has its own defaults, and leaves out what it refuses.
NumEpochs = Annotated[int, Field(ge=1, le=1 << 20, description="Number of epochs, without max_steps or budget.")]
MaxSteps = Annotated[int, Field(ge=0, le=1 << 40, description="Length of the run in steps; 0: not limited by steps.")]
Budget = Annotated[str, AfterValidator(_is_budget), Field(description='Length of the run in time, "20min"; or empty.')]
Optimizer = Annotated[
    Literal["adamw", "muon"], Field(description="adamw, or muon for the weight matrices of the layers.")
]
LearningRate = Annotated[float, Field(gt=0, le=10, description="Peak learning rate.")]
FittedLearningRate = Annotated[
    float, Field(ge=0, le=10, description="Peak learning rate; 0: chosen from the hidden size.")
]
WeightDecay = Annotated[float, Field(ge=0, le=10, description="Weight decay of matrices.")]
Beta = Annotated[float, Field(ge=0, lt=1)]
AdamBetas = Annotated[tuple[Beta, Beta], Strict(False), Field(description="AdamW betas.")]  # TOML has lists
AdamEpsilon = Annotated[float, Field(gt=0, le=1, description="AdamW epsilon.")]
MaxGradNorm = Annotated[float, Field(ge=0, description="Maximum gradient norm; 0 disables clipping.")]
WarmupRatio = Annotated[float, Field(ge=0, le=1, description="Share of the run for learning rate warmup.")]
WarmupSteps = Annotated[int, Field(ge=0, le=1 << 24, description="Steps of learning rate warmup; 0: see warmup_ratio.")]
Scheduler = Annotated[
    SchedulerType, Field(description="Decay after warmup: linear, cosine, noam (1/sqrt(step)) or constant.")
]
MinLrRatio = Annotated[
    float, Field(ge=0, le=1, description="Final learning rate as a share of the peak learning rate.")
]
AccumulationSteps = Annotated[
    int, Field(ge=1, le=1 << 20, description="Parts of a batch that are trained on one after the other.")
]
Patience = Annotated[
    int, Field(ge=0, le=1 << 20, description="Evaluations without improvement before stopping; 0: never.")
]
Select = Annotated[
    Literal["best", "last", "average"],
    Field(description="Weights to keep: the best on dev, the last, or the average of the last epochs."),
]
AverageEpochs = Annotated[
    int, Field(ge=1, le=100, description="Last epochs whose weights are averaged; best: kept if better. 1: none.")
]


class TrainingSection(SettingsSection):
    """Length, optimizer, schedule and choice of weights: what `Trainer` does for every recipe."""

    num_epochs: NumEpochs = 3
    max_steps: MaxSteps = 0
    budget: Budget = ""
    learning_rate: FittedLearningRate = 0.0
    optimizer: Optimizer = "adamw"
    weight_decay: WeightDecay = 0.01
    adam_betas: AdamBetas = (0.9, 0.98)
    adam_epsilon: AdamEpsilon = 1e-6
    max_grad_norm: MaxGradNorm = 1.0
    warmup_ratio: WarmupRatio = 0.1
    warmup_steps: WarmupSteps = 0
    lr_scheduler_type: Scheduler = "linear"
    min_lr_ratio: MinLrRatio = 0.0
    gradient_accumulation_steps: AccumulationSteps = 1
    early_stopping_patience: Patience = 0
    select: Select = "best"
    average_epochs: AverageEpochs = 1

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_steps and self.budget:
            raise ValueError("training.max_steps and training.budget both say how long to train; set one of them")
        if self.warmup_steps and self.budget:
            raise ValueError("training.warmup_steps counts steps, and training.budget time; set training.warmup_ratio")
        if self.lr_scheduler_type == "noam" and not (self.warmup_steps or self.warmup_ratio):
            raise ValueError("training.warmup_steps is 0, and noam depends on the warmup; set it, or another scheduler")
        return self


class RunSection(SettingsSection):
    seed: int = Field(default=0, ge=0, lt=1 << 62, description="Seed of initial weights, data order and dropout.")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that supports it, otherwise fp32.")
    compile: Literal["auto", "on", "off"] = Field(
        default="auto", description="torch.compile; auto: on a GPU, if all batches have one shape."
    )
    parallel: Parallel = Field(
        default="auto",
        description="Several processes: ddp, each has the model; fsdp, each has a part of it; auto: fsdp if needed.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute activations: less memory for about a third more time."
    )
    evaluate_every: IntervalSetting = Field(default="", description='"5min" or "500 steps"; empty: after each epoch.')
    checkpoint_every: IntervalSetting = Field(
        default="2min", description='"2min" or "500 steps"; empty: after each epoch only.'
    )
    save_total_limit: int = Field(default=2, ge=1, le=1 << 20, description="Number of recent checkpoints to keep.")


CHANGEABLE_SETTINGS = frozenset({"run.parallel"})  # a resumed run may share its work in another way
