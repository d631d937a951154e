"""A recipe as small as one can be: a line through points. `regard.training.run.run` and `Trainer` do the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.checkpoints.files import write_folder
from regard.settings import SettingsFile
from regard.training.events import Events, Finished
from regard.training.recipe import Evaluation, Recipe, Share, StepBatch, TrainingOutcome, TrainingRun, epochs_from
from regard.training.run import Session
from regard.training.run_folder import REPORT, RunReport
from regard.training.settings import LearningRate, NumEpochs, RunSection, TrainingSection


class ToySection(TrainingSection):
    num_epochs: NumEpochs = 4
    learning_rate: LearningRate = 0.1


class ToyConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=4"
    training: ToySection = ToySection()
    run: RunSection = RunSection()


class ToyReport(RunReport):
    outcome: TrainingOutcome


class Loss(nn.Module):
    def __init__(self, model: nn.Module, dropout: float) -> None:
        super().__init__()
        self.model, self.dropout = model, dropout

    def forward(self, x: Tensor, weight: float) -> dict[str, Tensor]:
        return {"loss": self.model(nn.functional.dropout(x, self.dropout)).square().mean() * weight}


class ToyRecipe(Recipe, TrainingRun):
    kind, report_class, steps_per_epoch, main_score = "toy", ToyReport, 3, "good"

    def __init__(self, config: ToyConfig, *, dropout: float = 0.5) -> None:
        self.config, self.training, self.run, self.dropout = config, config.training, config.run, dropout
        self.score: Callable[[nn.Module], float] = lambda model: -float(model(torch.ones(1, 4)).detach().abs())

    def identity(self) -> dict[str, Any]:
        return {"task": "toy"}

    def build_model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 1))

    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        return Loss(model, self.dropout)

    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        for epoch, first in epochs_from(step, 3):
            for index in range(first, 3):
                rows = share.parts([epoch * 3 + index + k for k in range(4)], len)
                parts = [{"x": torch.tensor(part).float()[:, None].expand(-1, 4), "weight": w} for part, w in rows]
                yield StepBatch(parts, tokens=4)

    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        yield 1, 2
        yield 2, 2
        return {"good": self.score(model)}

    def train(self, session: Session) -> Events[ToyReport | None]:
        trainer = session.trainer(self)
        outcome = yield from trainer.train()
        model, report = trainer.whole_model(), ToyReport(output=str(session.output), outcome=outcome)
        if session.world.is_main:
            write_folder(session.output, tensors=model.state_dict(), files={REPORT: report.file()})
            yield Finished(scores=outcome.scores)
        return report
