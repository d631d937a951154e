"""EpochTrainer: events, the best epoch, early stopping, and resuming."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.events import Event, drain
from regard.settings import Precision
from regard.training import optimizer, trainer
from regard.training.events import Events
from regard.training.stopping import Stop

CPU = torch.device("cpu")


@dataclass
class Run:
    precision: Precision = "fp32"
    checkpoint_every: str = "2 steps"


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": self.line(nn.functional.dropout(x, 0.5)).square().mean()}


class Toy(trainer.EpochTrainer):
    """A trainer with three batches an epoch and predefined scores."""

    def __init__(self, scores: Sequence[float], folder: Path | None = None, **options: Any) -> None:
        self.given, self.events, self.saved_epochs = list(scores), list[Event](), list[int]()
        self.bad = -1
        loss = Loss()
        super().__init__(
            loss,
            loss,
            optimizer.build_optimizers(loss, name="adamw", learning_rate=0.1),
            **{
                "num_epochs": 4,
                "patience": 0,
                "max_grad_norm": 1.0,
                "run": Run(),
                "steps_per_epoch": 3,
                "learning_rate": lambda done: 0.1 * (1 - done),
                "main_score": "good",
                "seed": 7,
                "device": CPU,
                "folder": folder,
                **options,
            },
        )

    def _epoch_batches(self, epoch: int) -> list[list[int]]:
        return [[epoch, index] for index in range(3)]

    def _inputs(self, group: Sequence[int], number: int) -> dict[str, Any]:
        assert group == [number // 3, number % 3]
        return {"x": torch.full((2, 3), float("nan") if number == self.bad else 1.0 + number)}

    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        for done in (1, 2, 3):
            yield from self._evaluation_progress(done, 3)
        return {"good": self.given[epoch - 1]}

    def _keep_weights(self, epoch: int) -> None:
        if self.best_epoch == epoch:
            self.saved_epochs.append(epoch)

    def run(self) -> int:
        drain(self._resume(), self.events.append)
        assert self.train()
        return self.step

    def train(self, stop: Stop | None = None, on_event: Callable[[Event], object] = lambda event: None) -> bool:
        def record(event: Event) -> None:
            self.events.append(event)
            on_event(event)

        return drain(self._train(stop or Stop()), record)

    def named(self, name: str) -> list[Any]:
        return [event for event in self.events if event.type == name]


def test_steps_and_evaluations_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 0.0)
    toy = Toy([1.0, 3.0, 2.0, 2.5])
    assert toy.run() == 12
    assert [event.step for event in toy.named("step")] == list(range(1, 13))
    assert toy.named("step")[4].epoch == 2 and toy.named("step")[4].learning_rate == pytest.approx(0.1 * 8 / 12)
    assert [(one.epoch, one.done, one.total) for one in toy.named("evaluating")][:4] == [
        (1, 1, 3),
        (1, 2, 3),
        (1, 3, 3),
        (2, 1, 3),
    ]
    assert [event.scores["good"] for event in toy.named("evaluation")] == [1.0, 3.0, 2.0, 2.5]
    assert toy.best_epoch == 2 and toy.saved_epochs == [1, 2]


def test_fast_steps_are_reported_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 1e9)
    toy = Toy([1.0] * 4, run=Run(checkpoint_every=""))
    toy.train()
    assert [event.step for event in toy.named("step")] == [3, 6, 9, 12]  # the last step of each epoch
    assert {event.done for event in toy.named("evaluating")[1:]} == {3}


def test_early_stopping() -> None:
    toy = Toy([2.0, 1.0, 1.5, 9.0], patience=2)
    assert toy.run() == 9 and toy.best_epoch == 1
    last = Toy([2.0, 1.0, 1.5, 0.0], patience=2, main_score=None)
    assert last.run() == 12 and last.best_epoch == 4


@pytest.mark.parametrize("after", [1, 2, 3, 5, 11])
def test_an_interrupted_run_resumes_bit_for_bit(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 0.0)
    scores = [1.0, 3.0, 2.0, 2.5]
    whole = Toy(scores)
    whole.train()
    cut, stop = Toy(scores, tmp_path), Stop()

    def stop_after(event: Event) -> None:
        if getattr(event, "step", None) == after:
            stop.signal = 2

    assert not cut.train(stop, stop_after)
    again = Toy(scores, tmp_path)
    assert again.run() == 12
    assert [event.step for event in again.named("resume")] == [after]
    assert again.history == whole.history and again.best_epoch == 2
    for name, tensor in whole.model.state_dict().items():
        assert tensor.equal(again.model.state_dict()[name]), name
    assert Toy(scores, tmp_path).run() == 12  # the run is finished: nothing to do


def test_a_nan_loss_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 0.0)
    toy = Toy([1.0] * 4)
    toy.bad = 4
    with pytest.raises(
        RegardError,
        match=r"diverged: at step 5 the loss is nan.*learning rate 0\.0666667.*Lower training\.learning_rate",
    ):
        toy.train()
