"""What a fine-tuning run came to: as JSON, as Markdown and as lines for a terminal.

Knows outcomes and numbers; trains nothing and reads no file.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.finetuning.trainer import SeedResult

__all__ = ["FineTuningReport"]


@dataclass(frozen=True)
class FineTuningReport:
    """All seeds of a run. `data` says what was read, `main` is the score that decides."""

    task: str
    model: str
    main: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    outcomes: list[SeedResult] = field(default_factory=list)
    beside: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # other runs: name -> mean, deviation

    @property
    def best(self) -> SeedResult:
        return max(self.outcomes, key=lambda outcome: outcome.scores[self.main])

    @property
    def mean(self) -> dict[str, float]:
        return {name: statistics.fmean(self._of(name)) for name in self.outcomes[0].scores}

    @property
    def deviation(self) -> dict[str, float]:
        """Of the sample, that is with n - 1; 0 for one seed."""
        several = len(self.outcomes) > 1
        return {name: statistics.stdev(self._of(name)) if several else 0.0 for name in self.outcomes[0].scores}

    def _of(self, name: str) -> Sequence[float]:
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
        """The report that `document` was made of."""
        return cls(
            document["task"],
            document["model"],
            document["score"],
            document["data"],
            document["settings"],
            [SeedResult(**outcome) for outcome in document["seeds"]],
            document.get("beside", {}),
        )

    def markdown(self) -> str:
        names = list(self.outcomes[0].scores)
        head = ["seed", "epoch", *names, "seconds"]
        rows = [
            [str(one.seed), str(one.epoch), *(f"{one.scores[name]:.2f}" for name in names), f"{one.seconds:.0f}"]
            for one in self.outcomes
        ]
        if len(self.outcomes) > 1:
            mean, deviation = self.mean, self.deviation
            rows.append(["mean", "", *(f"{mean[name]:.2f} ± {deviation[name]:.2f}" for name in names), ""])
        for name, other in self.beside.items():
            cells = [f"{other['mean'][score]:.2f} ± {other['deviation'][score]:.2f}" for score in names]
            rows.append([name, "", *cells, ""])
        table = [head, ["---"] * len(head), *rows]
        lines = [f"# {self.task} with {self.model}", ""]
        lines += [f"{name}: {about['examples']:,} examples of {about['path']}" for name, about in self.data.items()]
        lines += ["", *(f"| {' | '.join(row)} |" for row in table), ""]
        return "\n".join(lines)
