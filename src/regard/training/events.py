"""Events of a training run, and the words for scores and learning curves.

The terminal, the page and the log of the run folder are consumers of the same events. Events with `transient` set
replace one another on a terminal; the others are lines of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from regard.events import Event
from regard.wording import duration

R = TypeVar("R")
Events = Generator[Event, None, R]  # yields events and returns a result
BARS = "▁▂▃▄▅▆▇█"
FEW_EXAMPLES = 50  # on so many, answers are counted
OBJECTIVES = {  # how the scores of a pretrained model are shown
    "mlm": "tokens",
    "lm": "tokens",
    "nsp": "next sentence",
    "replaced": "replaced tokens",
    "spans": "dropped spans",
    "forwards": "next token",
    "backwards": "previous token",
}


class TrainingEvent(Event):
    """An event of a training run; `seed` is set where several seeds are trained."""

    seed: int | None = None

    def line(self) -> str | None:
        text = self.text()
        return text if text is None or self.seed is None or self.once else f"seed {self.seed}  {text}"

    def text(self) -> str | None:
        """The event in words, without the seed."""
        return None


class TrainingStarted(TrainingEvent):
    type: Literal["started"] = "started"
    steps: int | None  # at most; None: as many as there is time for
    examples: int
    parameters: int

    def text(self) -> str:
        steps = "" if self.steps is None else f", at most {self.steps:,} steps"
        return f"{self.parameters:,} parameters{steps}"


class PretrainingPlan(TrainingEvent):
    """The measured speed, and what follows from it for the run."""

    type: Literal["plan"] = "plan"
    tokens_per_second: float
    seconds_per_step: float
    preparation: float  # seconds before the first step
    steps: int
    seconds: float
    tokens: int
    epochs: float
    mfu: float  # model FLOPs utilization: the share of the device's measured peak
    expected_loss: float | None  # in nats, on held-out text; None if no comparable run was measured

    def text(self) -> str:
        text = (
            f"plan: {self.steps:,} steps of {self.seconds_per_step:.2g} s in {duration(self.seconds)} at "
            f"{self.tokens_per_second:,.0f} tokens/s (MFU {self.mfu:.2f}), after {duration(self.preparation)} of "
            f"preparation\n      {self.tokens:,} tokens, {self.epochs:.3g} epochs"
        )
        if self.expected_loss is not None:
            text += f"\n      expected held-out loss: about {self.expected_loss:.2f}"
        return text


class LayersScheduled(TrainingEvent):
    """When each layer starts to learn, and its peak learning rate; `layer` is 0 for embeddings, None for the head."""

    type: Literal["layers"] = "layers"
    once: ClassVar[bool] = True  # the same for all seeds

    steps: int
    layers: list[dict[str, Any]]

    def text(self) -> str:
        starts, rates = [], []
        for one in self.layers:
            name = {None: "task head", 0: "embeddings"}.get(one["layer"], f"layer {one['layer']}")
            starts.append(f"{name} never" if one["step"] is None else f"{name} at {one['step']:,}")
            rates.append(f"{name} {one['learning_rate']:.2g}")
        return f"first training step, of {self.steps:,}: {', '.join(starts)}\npeak learning rates: {', '.join(rates)}"


class StepFinished(TrainingEvent):
    """Progress of the training; reported about once a second."""

    type: Literal["step"] = "step"
    transient: ClassVar[bool] = True

    step: int
    seconds: float
    loss: float
    learning_rate: float
    progress: float
    seconds_left: float
    steps: int | None = None
    epoch: int | None = None
    losses: dict[str, float] = Field(default_factory=dict)  # the parts of the loss
    grad_norm: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None

    def text(self) -> str:
        if self.tokens_per_second is None:
            speed = f"{self.step / max(self.seconds, 1e-9):.1f} steps/s"
        else:
            speed = f"{self.tokens_per_second:,.0f} tokens/s"
        parts = [
            f"epoch {self.epoch}" if self.epoch else "",
            f"step {self.step:,}" + (f" of {self.steps:,}" if self.steps else f"  {100 * self.progress:.1f}%"),
            f"loss {self.loss:.3f}",
            speed,
            f"MFU {self.mfu:.2f}" if self.mfu is not None else "",
            f"{duration(self.seconds_left)} left",
        ]
        return "  ".join(part for part in parts if part)


class EvaluationProgress(TrainingEvent):
    type: Literal["evaluating"] = "evaluating"
    transient: ClassVar[bool] = True

    epoch: int
    done: int
    total: int  # 0 if unknown

    def text(self) -> str:
        count = f" {self.done:,} of {self.total:,} examples" if self.total else ""
        return f"epoch {self.epoch}  evaluating{count}"


class Evaluated(TrainingEvent):
    """Scores on dev or held-out data, and the mean training loss of the epoch."""

    type: Literal["evaluation"] = "evaluation"
    seconds: float
    scores: dict[str, Any]
    epoch: int | None = None
    step: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    examples: int | None = None  # in the dev data, if known

    def text(self) -> str:
        where = f"epoch {self.epoch} " if self.epoch is not None else f"step {self.step:,}, held-out text:"
        loss = [] if self.train_loss is None else [f"train loss {self.train_loss:.3f}"]
        return f"{where} {'  '.join([*describe_scores(self.scores, self.examples), *loss])}"


class AverageEvaluated(TrainingEvent):
    """Scores of the average of the last epochs' weights."""

    type: Literal["average"] = "average"
    epochs: list[int]
    scores: dict[str, float]

    def text(self) -> str:
        return f"average of epochs {self.epochs[0]} to {self.epochs[-1]}  {'  '.join(describe_scores(self.scores))}"


class ThresholdChosen(TrainingEvent):
    """Values that the task chose on dev, such as the threshold for no answer."""

    type: Literal["threshold"] = "threshold"
    values: dict[str, Any]

    def text(self) -> str:
        return "best on dev: " + "  ".join(f"{name} {value:.4g}" for name, value in self.values.items())


class CheckpointSaved(TrainingEvent):
    type: Literal["checkpoint"] = "checkpoint"
    step: int


class Resumed(TrainingEvent):
    type: Literal["resume"] = "resume"
    step: int
    seconds: float
    tokens: int | None = None

    def text(self) -> str:
        return f"resuming after step {self.step:,} and {duration(self.seconds)} of training"


class Interrupted(TrainingEvent):
    type: Literal["interrupted"] = "interrupted"
    step: int

    def text(self) -> str:
        return f"stopped after step {self.step:,}, everything is saved; run the same command with --resume to continue"


class Finished(TrainingEvent):
    type: Literal["finished"] = "finished"
    scores: dict[str, Any]
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None


def count_correct(scores: Mapping[str, Any], examples: int | None) -> str | None:
    """ "6 of 6 correct": what the accuracy means on so few examples that percentages would mislead; else None.

    The accuracy of tagging counts tokens, not examples; it comes with precision and recall.
    """
    accuracy = None if "recall" in scores else scores.get("accuracy")
    if examples is None or not 0 < examples <= FEW_EXAMPLES or not isinstance(accuracy, float | int):
        return None
    return f"{round(accuracy * examples / 100)} of {examples} correct"


def describe_scores(scores: Mapping[str, Any], examples: int | None = None) -> list[str]:
    """Percentages by name, or the loss and accuracy or perplexity of each objective; the number of correct answers if
    the scores are those of few `examples`."""
    if (correct := count_correct(scores, examples)) is not None:
        return [correct]
    parts = []
    for name, value in scores.items():
        if not isinstance(value, Mapping):
            parts.append(f"{name} {value:.2f}")
            continue
        if "accuracy" in value:
            quality = f"accuracy {100 * value['accuracy']:.1f}%"
        else:
            quality = f"perplexity {value['perplexity']:.2f}"
        parts.append(f"{OBJECTIVES.get(name, name)}: loss {value['loss']:.3f}, {quality}")
    return parts


def sparkline(values: Sequence[float]) -> str:
    """The values as bars, from the lowest to the highest."""
    low, high = min(values), max(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1)) if high > low else 0] for value in values)


def curve_lines(
    losses: Sequence[float], history: Sequence[Mapping[str, float]], score: str, *, best: float | None = None
) -> list[str]:
    """The curve for a terminal: loss and score with first and last value; empty for a single epoch.

    `best` is the epoch that is kept, from 1.
    """
    if len(losses) != len(history) or len(losses) < 2:
        return []
    lines = [f"{'train loss':<20}{losses[0]:6.3f} {sparkline(losses)} {losses[-1]:.3f}  {len(losses)} epochs"]
    if all(score in scores for scores in history):
        values = [scores[score] for scores in history]
        kept = "" if best is None else f"  best: epoch {best:g}"
        lines.append(f"{'dev ' + score:<20}{values[0]:6.2f} {sparkline(values)} {values[-1]:.2f}{kept}")
    return lines


def curve_markdown(losses: Sequence[float], history: Sequence[Mapping[str, float]]) -> list[str]:
    """The curve as the lines of a Markdown table."""
    if len(losses) != len(history) or not losses:
        return []
    names = list(history[-1])
    rows = [["epoch", "train loss", *names], ["---"] * (2 + len(names))]
    for epoch, (loss, scores) in enumerate(zip(losses, history, strict=True), start=1):
        cells = [f"{scores[name]:.2f}" if name in scores else "" for name in names]
        rows.append([str(epoch), f"{loss:.4f}", *cells])
    return [f"| {' | '.join(row)} |" for row in rows]
