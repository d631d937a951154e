"""Epochs of steps: what is told, which epoch is the best, when it ends, and going on where it was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.settings import Precision
from regard.training import epochs, optimizer
from regard.training.stopping import Stop

CPU = torch.device("cpu")


@dataclass
class Training:
    epochs: int = 4
    clip: float = 1.0
    patience: int = 0


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


class Toy(epochs.Epochs):
    """Three batches an epoch; its scores are given."""

    def __init__(self, scores: Sequence[float], folder: Path | None = None, **options: Any) -> None:
        self.given, self.events, self.kept = list(scores), list[tuple[str, Mapping[str, object]]](), list[int]()
        self.bad = -1
        loss = Loss()
        super().__init__(
            loss,
            loss,
            optimizer.build(loss, name="adamw", rate=0.1),
            **{
                "training": Training(),
                "run": Run(),
                "per_epoch": 3,
                "rate": lambda done: 0.1 * (1 - done),
                "main": "good",
                "seed": 7,
                "device": CPU,
                "folder": folder,
                "note": lambda event, **values: self.events.append((event, values)),
                **options,
            },
        )

    def _groups(self, epoch: int) -> list[list[int]]:
        return [[epoch, place] for place in range(3)]

    def _inputs(self, group: Sequence[int], number: int) -> dict[str, Any]:
        assert group == [number // 3, number % 3]
        return {"x": torch.full((2, 3), float("nan") if number == self.bad else 1.0 + number)}

    def _scores(self, epoch: int) -> dict[str, float]:
        for done in (1, 2, 3):
            self.judging(done, 3)
        return {"good": self.given[epoch - 1]}

    def _keep(self, epoch: int) -> None:
        if self.best_epoch == epoch:
            self.kept.append(epoch)

    def named(self, name: str) -> list[Mapping[str, object]]:
        return [values for event, values in self.events if event == name]


def test_steps_and_judgements_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "LOG_EVERY", 0.0)
    toy = Toy([1.0, 3.0, 2.0, 2.5])
    assert toy._go(Stop()) == 12
    assert [values["step"] for values in toy.named("step")] == list(range(1, 13))
    assert toy.named("step")[4]["epoch"] == 2 and toy.named("step")[4]["rate"] == pytest.approx(0.1 * 8 / 12)
    assert [(one["epoch"], one["done"], one["of"]) for one in toy.named("judging")][:4] == [
        (1, 1, 3),
        (1, 2, 3),
        (1, 3, 3),
        (2, 1, 3),
    ]
    assert [values["good"] for values in toy.named("evaluation")] == [1.0, 3.0, 2.0, 2.5]
    assert toy.best_epoch == 2 and toy.kept == [1, 2]


def test_little_is_told_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "LOG_EVERY", 1e9)
    toy = Toy([1.0] * 4)
    toy._go(Stop())
    assert [values["step"] for values in toy.named("step")] == [3, 6, 9, 12]  # each epoch's last
    assert {values["done"] for values in toy.named("judging")[1:]} == {3}


def test_it_ends_when_no_more_is_hoped_for() -> None:
    toy = Toy([2.0, 1.0, 1.5, 9.0], training=Training(patience=2))
    assert toy._go(Stop()) == 9 and toy.best_epoch == 1
    last = Toy([2.0, 1.0, 1.5, 0.0], training=Training(patience=2), main=None)
    assert last._go(Stop()) == 12 and last.best_epoch == 4


@pytest.mark.parametrize("after", [1, 2, 3, 5, 11])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "LOG_EVERY", 0.0)
    scores = [1.0, 3.0, 2.0, 2.5]
    whole = Toy(scores)
    whole._go(Stop())
    cut, stop = Toy(scores, tmp_path), Stop()
    note = cut.note

    def stopping(event: str, **values: object) -> None:
        note(event, **values)
        if values.get("step") == after:
            stop.signal = 2

    cut.note = stopping
    assert cut._go(stop) is None
    again = Toy(scores, tmp_path)
    assert again._go(Stop()) == 12
    assert [values["step"] for values in again.named("resume")] == [after]
    assert again.history == whole.history and again.best_epoch == 2
    for name, tensor in whole.model.state_dict().items():
        assert tensor.equal(again.model.state_dict()[name]), name
    assert Toy(scores, tmp_path)._go(Stop()) == 12  # it is over: nothing is done


def test_a_loss_that_is_no_number_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "LOG_EVERY", 0.0)
    toy = Toy([1.0] * 4)
    toy.bad = 4
    with pytest.raises(RegardError, match=r"diverged: at step 5 the loss is nan. The rate was 0\.0666667: lower"):
        toy._go(Stop())
