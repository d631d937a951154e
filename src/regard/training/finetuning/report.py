"""The result of a fine-tuning run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from regard.render.result import Table
from regard.training.events import count_correct
from regard.training.learning_curve import curve_lines, curve_markdown
from regard.training.run_folder import RunReport

Scores = dict[str, float]


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed: the scores of the epoch that is kept, and scores and training loss of each epoch."""

    seed: int
    scores: Scores
    epoch: int
    seconds: float
    steps: int
    history: list[Scores] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


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

    @property
    def best(self) -> SeedResult:
        return next(result for result in self.seeds if result.seed == self.best_seed)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.beside else {"beside"})

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
        table = [headers, ["---"] * len(headers), *rows]
        lines += ["", *(f"| {' | '.join(row)} |" for row in table), ""]
        if curve := curve_markdown(self.best.losses, self.best.history):
            lines += [f"## Learning curve of seed {self.best_seed}", "", *curve, ""]
        return "\n".join(lines)

    def to_text(self) -> str:
        count = len(self.seeds)
        folder = f"{self.output}: " if self.output else ""
        if count > 1:
            lines = [f"{folder}the model of seed {self.best_seed}, the best; means of {count} seeds on dev"]
        else:
            lines = [f"{folder}scores on dev after epoch {self.best.epoch}"]
        correct = count_correct(self.mean, self.data.get("dev", {}).get("examples")) if count == 1 else None
        if correct is not None:
            lines.append(correct)
        for name, value in self.mean.items() if correct is None else ():
            spread = f" ± {self.deviation[name]:.2f}" if count > 1 else ""
            lines.append(f"{name:<20}{value:6.2f}{spread}")
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
