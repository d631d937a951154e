"""The result of a fine-tuning run, as JSON and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed: the scores of the epoch that is kept, and the scores after each epoch."""

    seed: int
    scores: dict[str, float]
    epoch: int
    seconds: float
    steps: int
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class FineTuningReport:
    """The result of all seeds. `main` is the score that decides; `beside` are other runs with mean and deviation."""

    task: str
    model: str
    main: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    outcomes: list[SeedResult] = field(default_factory=list)
    beside: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def best(self) -> SeedResult:
        return max(self.outcomes, key=lambda outcome: outcome.scores[self.main])

    @property
    def mean(self) -> dict[str, float]:
        return {name: statistics.fmean(self._values(name)) for name in self.outcomes[0].scores}

    @property
    def deviation(self) -> dict[str, float]:
        """The sample standard deviation (with n - 1); 0 for one seed."""
        several = len(self.outcomes) > 1
        return {name: statistics.stdev(self._values(name)) if several else 0.0 for name in self.outcomes[0].scores}

    def _values(self, name: str) -> Sequence[float]:
        return [outcome.scores[name] for outcome in self.outcomes]

    def document(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "model": self.model,
            "score": self.main,
            "data": self.data,
            "settings": self.settings,
            "mean": self.mean,
            "deviation": self.deviation,
            "best_seed": self.best.seed,
            **({"beside": self.beside} if self.beside else {}),
            "seeds": [asdict(outcome) for outcome in self.outcomes],
        }

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> FineTuningReport:
        """The report that `document()` returned the JSON of."""
        return cls(
            document["task"],
            document["model"],
            document["score"],
            document["data"],
            document["settings"],
            [SeedResult(**result) for result in document["seeds"]],
            document.get("beside", {}),
        )

    def markdown(self) -> str:
        names = list(self.outcomes[0].scores)
        head = ["seed", "epoch", *names, "seconds"]
        rows = [
            [str(one.seed), str(one.epoch), *(f"{one.scores[name]:.2f}" for name in names), f"{one.seconds:.0f}"]
            for one in self.outcomes
        ]
        others = dict(self.beside)
        if len(self.outcomes) > 1:
            others = {"mean": {"mean": self.mean, "deviation": self.deviation}} | others
        for name, other in others.items():
            cells = [f"{other['mean'][score]:.2f} ± {other['deviation'][score]:.2f}" for score in names]
            rows.append([name, "", *cells, ""])
        lines = [f"# {self.task} with {self.model}", ""]
        lines += [f"{name}: {about['examples']:,} examples of {about['path']}" for name, about in self.data.items()]
        table = [head, ["---"] * len(head), *rows]
        lines += ["", *(f"| {' | '.join(row)} |" for row in table), ""]
        return "\n".join(lines)

    def lines(self, output: str) -> list[str]:
        """The report for a terminal."""
        count, best = len(self.outcomes), self.best
        if count > 1:
            lines = [f"{output}: the model of seed {best.seed}, the best; means of {count} seeds on dev"]
        else:
            lines = [f"{output}: scores on dev after epoch {best.epoch}"]
        deviation = self.deviation
        for name, value in self.mean.items():
            spread = f" ± {deviation[name]:.2f}" if count > 1 else ""
            lines.append(f"{name:<20}{value:6.2f}{spread}")
        for name, other in self.beside.items():
            lines += [f"{name + ' ' + score:<20}{value:6.2f}" for score, value in other["mean"].items()]
        for name, value in self.data.get("test", {}).get("scores", {}).items():
            lines.append(f"{'test ' + name:<20}{value:6.2f}")
        return lines
