"""The result of a fine-tuning run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from regard.render.result import Table
from regard.training.events import count_correct, curve_lines, curve_markdown
from regard.training.recipe import TrainingOutcome
from regard.training.run_folder import RunReport
from regard.wording import count_of

Scores = dict[str, float]


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed: the scores of the epoch that is kept, and scores and training loss of each epoch."""

    seed: int
    scores: Scores
    epoch: float
    seconds: float
    steps: int
    history: list[Scores] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @classmethod
    def from_outcome(cls, seed: int, outcome: TrainingOutcome) -> SeedResult:
        last = outcome.epochs[-1]
        epoch = int(last) if last == int(last) else last
        return cls(seed, outcome.scores, epoch, outcome.seconds, outcome.steps, outcome.history, outcome.losses)


class BaselineResult(BaseModel):
    """Fine-tuning compared with a linear model on vectors of `model`; `kept` is the one that is in the folder.

    `scores` have those of both and of the majority class: of a cross-validation in `folds`, or on dev if there are
    none. `dev` are the baseline's on dev, `others` those of the vectors of other models.
    """

    model: str
    kept: Literal["baseline", "fine-tuning"]
    folds: int
    metric: str
    scores: dict[str, Scores]
    dev: Scores
    others: dict[str, Scores] = Field(default_factory=dict)
    strength: float

    def text(self) -> str:
        how = f"by cross-validation ({count_of(self.folds, 'fold')})" if self.folds else "on dev"
        kind = "ridge" if self.metric == "spearman" else "logistic"
        compared = {
            "fine-tuning": self.scores["fine-tuning"],
            f"baseline ({kind} regression on vectors of {self.model})": self.scores["baseline"],
            **{f"on vectors of {name}": scores for name, scores in self.others.items()},
            "mean" if kind == "ridge" else "majority class": self.scores["majority"],
        }
        parts = ", ".join(f"{name} {scores[self.metric]:.2f}" for name, scores in compared.items())
        kept = f"; the {'baseline' if self.kept == 'baseline' else 'fine-tuned model'} is kept"
        scores = self.scores
        if self.kept == "baseline" and scores["fine-tuning"][self.metric] > scores["baseline"][self.metric]:
            kept += ", as so small a lead may be chance"
        if not self.beats_majority:
            kept += ". Neither beats " + ("the mean" if kind == "ridge" else "the majority class")
            kept += ": the model has learned nothing useful; check the labels or add examples"
        return f"{self.metric} {how}: {parts}{kept}"

    @property
    def beats_majority(self) -> bool:
        majority = self.scores["majority"][self.metric]
        return max(self.scores[name][self.metric] for name in ("baseline", "fine-tuning")) > majority


class FineTuningReport(RunReport):
    """The result of all seeds, on dev. `score` is the one that decides; `beside` has mean and deviation of other runs.

    The standard deviation is that of a sample (with n - 1); 0 for one seed.
    """

    task: str
    model: str
    score: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    mean: Scores
    deviation: Scores
    best_seed: int
    beside: dict[str, dict[str, Scores]] = Field(default_factory=dict)
    seeds: list[SeedResult]
    baseline: BaselineResult | None = None

    @property
    def best(self) -> SeedResult:
        return next(result for result in self.seeds if result.seed == self.best_seed)

    def to_dict(self) -> dict[str, Any]:
        absent = {name for name in ("beside", "baseline") if not getattr(self, name)}
        return self.model_dump(mode="json", exclude=absent)

    @property
    def keeps_baseline(self) -> bool:
        return self.baseline is not None and self.baseline.kept == "baseline"

    @property
    def scores(self) -> Scores:
        """The scores on dev of the model in the folder; of several seeds, their mean."""
        return self.baseline.dev if self.baseline is not None and self.keeps_baseline else self.mean

    def to_table(self) -> Table:
        names = list(self.mean)
        rows = [[one.seed, one.epoch, *(one.scores[name] for name in names), one.seconds] for one in self.seeds]
        return ["seed", "epoch", *names, "seconds"], rows

    def markdown(self) -> str:
        headers, seeds = self.to_table()
        names = list(self.mean)
        rows = [
            [str(seed), str(epoch), *(f"{score:.2f}" for score in scores), f"{seconds:.0f}"]
            for seed, epoch, *scores, seconds in seeds
        ]
        others = dict(self.beside)
        if len(self.seeds) > 1:
            others = {"mean": {"mean": self.mean, "deviation": self.deviation}} | others
        for name, other in others.items():
            cells = [f"{other['mean'][score]:.2f} ± {other['deviation'][score]:.2f}" for score in names]
            rows.append([name, "", *cells, ""])
        lines = [f"# {self.task} with {self.model}", ""]
        lines += [f"{name}: {about['examples']:,} examples of {about['path']}" for name, about in self.data.items()]
        if self.baseline is not None:
            rows.append(["baseline", "", *(f"{self.baseline.dev[score]:.2f}" for score in names), ""])
            lines += ["", self.baseline.text()]
        table = [headers, ["---"] * len(headers), *rows]
        lines += ["", *(f"| {' | '.join(row)} |" for row in table), ""]
        if curve := curve_markdown(self.best.losses, self.best.history):
            lines += [f"## Learning curve of seed {self.best_seed}", "", *curve, ""]
        return "\n".join(lines)

    def to_text(self) -> str:
        count = len(self.seeds)
        folder = f"{self.output}: " if self.output else ""
        if self.baseline is not None and self.keeps_baseline:
            lines = [f"{folder}scores on dev of the baseline, a linear layer on vectors of {self.baseline.model}"]
        elif count > 1:
            lines = [f"{folder}the model of seed {self.best_seed}, the best; means of {count} seeds on dev"]
        else:
            lines = [f"{folder}scores on dev after epoch {self.best.epoch}"]
        several = count > 1 and not self.keeps_baseline
        correct = None if several else count_correct(self.scores, self.data.get("dev", {}).get("examples"))
        if correct is not None:
            lines.append(correct)
        for name, value in self.scores.items() if correct is None else ():
            spread = f" ± {self.deviation[name]:.2f}" if several else ""
            lines.append(f"{name:<20}{value:6.2f}{spread}")
        if self.baseline is not None:
            lines.append(self.baseline.text())
        for name, other in self.beside.items():
            lines += [f"{name + ' ' + score:<20}{value:6.2f}" for score, value in other["mean"].items()]
        for name, value in self.data.get("test", {}).get("scores", {}).items():
            lines.append(f"{'test ' + name:<20}{value:6.2f}")
        best = self.best
        lines += curve_lines(best.losses, best.history, self.score, best=best.epoch)
        return "\n".join(lines)


def summarize(seeds: Sequence[SeedResult], score: str) -> dict[str, Any]:
    """Mean and standard deviation of the scores, and the best seed, as fields of a `FineTuningReport`."""
    values = {name: [result.scores[name] for result in seeds] for name in seeds[0].scores}
    return {
        "mean": {name: statistics.fmean(each) for name, each in values.items()},
        "deviation": {name: statistics.stdev(each) if len(each) > 1 else 0.0 for name, each in values.items()},
        "best_seed": max(seeds, key=lambda result: result.scores[score]).seed,
        "seeds": seeds,
    }
