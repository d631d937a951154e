"""The trainer, with a toy recipe: events, the choice of weights, early stopping, resuming, processes, refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError, RegardError
from regard.events import Event, drain
from regard.training import trainer
from regard.training.recipe import Share
from regard.training.run import run
from regard.training.stopping import Stop
from regard.training.trainer import Trainer
from tests.training.recipes.pretraining.runs import losses
from tests.training.toy_recipe import ToyConfig, ToyRecipe

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


def toy(*settings: str, **options: Any) -> ToyRecipe:
    return ToyRecipe(ToyConfig.load(overrides=["run.checkpoint_every=2 steps", *settings]), **options)


class Run:
    """A trainer with its events, and predefined scores of the epochs."""

    def __init__(self, *settings: str, scores: Sequence[float] = (1.0,) * 9, folder: Path | None = None) -> None:
        self.events: list[Any] = []
        self.recipe = toy(*settings)
        self.trainer = Trainer(self.recipe, seed=7, device=CPU, folder=folder)
        self.recipe.score = lambda model: dict(enumerate(scores)).get(len(self.trainer.history), 0.0)

    def train(self, stop: Stop | None = None, on_event: Callable[[Event], object] = lambda event: None) -> Any:
        def record(event: Event) -> None:
            self.events.append(event)
            on_event(event)

        return drain(self.trainer.train(stop), record)

    def named(self, name: str) -> list[Any]:
        return [event for event in self.events if event.type == name]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.trainer.model.state_dict().items()}


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 0.0)


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(tensor.equal(second[name]) for name, tensor in first.items())


@pytest.mark.usefixtures("every_step")
def test_steps_and_evaluations_are_events() -> None:
    run = Run(scores=[1.0, 3.0, 2.0, 2.5])
    outcome = run.train()
    assert outcome.steps == 12 and outcome.tokens == 48
    assert [event.step for event in run.named("step")] == list(range(1, 13))
    assert run.named("step")[4].epoch == 2
    assert run.named("step")[4].learning_rate == pytest.approx(0.1 * (1 - (4 - 1.2) / (12 - 1.2)))
    assert [(one.epoch, one.done, one.total) for one in run.named("evaluating")][:4] == [
        (1, 1, 2),
        (1, 2, 2),
        (2, 1, 2),
        (2, 2, 2),
    ]
    assert [event.scores["good"] for event in run.named("evaluation")] == [1.0, 3.0, 2.0, 2.5]
    assert outcome.epochs == [2] and outcome.scores == {"good": 3.0} and len(outcome.losses) == 4


def test_fast_steps_are_reported_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 1e9)
    run = Run("run.checkpoint_every=")
    run.train()
    assert [event.step for event in run.named("step")] == [3, 6, 9, 12]  # the last step of each epoch
    assert {event.done for event in run.named("evaluating")[1:]} == {2}


def test_early_stopping() -> None:
    run = Run("training.early_stopping_patience=2", scores=[2.0, 1.0, 1.5, 9.0])
    outcome = run.train()
    assert outcome.steps == 9 and outcome.epochs == [1]
    last = Run("training.early_stopping_patience=2", "training.select=last", scores=[2.0, 1.0, 1.5, 0.0]).train()
    assert last.steps == 12 and last.epochs == [4]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    ("settings", "scores", "epochs"),
    [
        (["training.select=best"], [1.0, 3.0, 2.0, 2.5], [2]),
        (["training.select=last"], [1.0, 3.0, 2.0, 2.5], [4]),
        (["training.select=average", "training.average_epochs=3"], [9.0, 3.0, 2.0, 2.5, 1.0], [2, 3, 4]),
        (["training.select=best", "training.average_epochs=2"], [1.0, 3.0, 2.0, 2.5, 4.0], [3, 4]),
        (["training.select=best", "training.average_epochs=2"], [1.0, 3.0, 2.0, 2.5, 2.0], [2]),
    ],
)
def test_the_chosen_weights_are_loaded(
    settings: list[str], scores: list[float], epochs: list[int], resumed: bool, tmp_path: Path
) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def keep(event: Event) -> None:
        if event.type == "evaluation":
            seen.append(run.weights)

    run = Run(*settings, scores=scores)
    outcome = run.train(None, keep)
    if resumed:
        stop, cut = Stop(), Run(*settings, scores=scores, folder=tmp_path)

        def stop_after(event: Event) -> None:
            if event.type == "checkpoint" and getattr(event, "step", 0) == 11:
                stop.signal = 2

        with pytest.raises(SystemExit):
            cut.train(stop, stop_after)
        run = Run(*settings, scores=scores, folder=tmp_path)
        assert run.train().scores == outcome.scores
    assert outcome.epochs == epochs
    for name, tensor in run.weights.items():
        torch.testing.assert_close(tensor, torch.stack([seen[epoch - 1][name] for epoch in epochs]).mean(0))


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("after", [1, 2, 3, 5, 11])
def test_an_interrupted_run_resumes_bit_for_bit(after: int, tmp_path: Path) -> None:
    scores = [1.0, 3.0, 2.0, 2.5]
    whole = Run(scores=scores)
    outcome = whole.train()
    cut, stop = Run(scores=scores, folder=tmp_path), Stop()

    def stop_after(event: Event) -> None:
        if getattr(event, "step", None) == after:
            stop.signal = 2

    with pytest.raises(SystemExit):
        cut.train(stop, stop_after)
    assert [event.step for event in cut.named("interrupted")] == [after]
    again = Run(scores=scores, folder=tmp_path)
    found = again.train()
    assert [event.step for event in again.named("resume")] == [after]
    assert (found.history, found.epochs, found.losses) == (outcome.history, outcome.epochs, outcome.losses)
    assert same(again.weights, whole.weights)
    assert Run(scores=scores, folder=tmp_path).train().steps == 12  # the run is finished: nothing to do


@pytest.mark.usefixtures("every_step")
def test_a_nan_loss_is_an_error() -> None:
    run = Run("training.lr_scheduler_type=constant")
    batches = run.recipe.inputs
    count = iter(range(99))
    run.recipe.inputs = lambda part, device: (  # type: ignore[method-assign]
        batches({**part, "x": part["x"] * (float("nan") if next(count) == 4 else 1.0)}, device)
    )
    with pytest.raises(RegardError, match=r"at step 5 .*nan.*0\.1.*Lower training\.learning_rate"):
        run.train()


def test_the_length_is_in_epochs_steps_or_time() -> None:
    assert Run("training.max_steps=5").train().steps == 5
    timed = Run("training.budget=0.2s").train()
    assert timed.steps >= 1 and timed.seconds >= 0.2
    with pytest.raises(InputError, match=r"training\.max_steps and training\.budget both say how long"):
        toy("training.max_steps=5", "training.budget=1s")


def test_an_epoch_that_was_cut_short_is_evaluated() -> None:
    outcome = Run("training.max_steps=5", scores=[1.0, 2.0]).train()
    assert outcome.epochs == [5 / 3] and outcome.scores == {"good": 2.0}
    assert Run("training.max_steps=5", scores=[2.0, 1.0]).train().epochs == [1]


@pytest.mark.usefixtures("every_step")
def test_parts_of_a_batch_give_the_gradient_of_the_whole() -> None:
    found = []
    for count in (1, 3):
        run = Run(f"training.gradient_accumulation_steps={count}")
        run.recipe.dropout = run.trainer.objective.dropout = 0.0  # type: ignore[assignment]
        run.train()
        found.append([event.loss for event in run.named("step")])
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize(
    ("setting", "holds"),
    [
        ("training.optimizer=muon", "muon trains the matrices inside layers, and this model has none"),
        ("run.gradient_checkpointing=true", "no layers"),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_name(setting: str, holds: str) -> None:
    with pytest.raises(InputError, match=holds):
        Trainer(toy(setting), device=CPU)


def test_shares_cover_a_batch_once() -> None:
    rows = list(range(10))
    shares = [Share(rank, 2, 6) for rank in range(2)]
    parts = [part for share in shares for part, weight in share.parts(rows, len) if weight]
    assert sorted(row for part in parts for row in part) == rows
    weights = [weight for share in shares for _, weight in share.parts(rows, len)]
    assert sum(weights) == pytest.approx(6)


CHILD = """
import os, sys
from regard.events import drain
from regard.training import trainer
from regard.training.run import run
from tests.training.toy_recipe import ToyConfig, ToyRecipe
trainer.LOG_EVERY = 0.0
output, kill, dropout, *settings = sys.argv[1:]
def on_event(event):
    if event.type == "step" and event.step == int(kill):
        os.kill(os.getpid(), 9)
drain(run(ToyRecipe(ToyConfig.load(overrides=settings), dropout=float(dropout)), output, device="cpu"), on_event)
"""


def start(output: Path, *arguments: object, **environment: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, str(output), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **{k: str(v) for k, v in environment.items()}})


@pytest.mark.usefixtures("every_step")
def test_a_killed_run_is_resumed_bit_for_bit(tmp_path: Path, one_thread: None) -> None:
    settings = ["training.average_epochs=2", "run.checkpoint_every=2 steps"]
    assert start(tmp_path / "cut", 8, 0.5, *settings, OMP_NUM_THREADS=1).wait(100) == -signal.SIGKILL
    recipe = ToyRecipe(ToyConfig.load(overrides=settings))
    with pytest.raises(InputError, match="unfinished run"):
        drain(run(recipe, tmp_path / "cut", device="cpu"))
    found = [drain(run(recipe, tmp_path / name, device="cpu", resume=True)) for name in ("cut", "whole")]
    assert found[0].outcome.scores == found[1].outcome.scores
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("cut", "whole")]
    assert files[0] == files[1]
    assert not (tmp_path / "cut" / "work").exists()
    assert drain(run(recipe, tmp_path / "cut", device="cpu", resume=True)) == found[0]


def test_two_processes_train_together(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    together = [start(tmp_path / "two", 0, 0, **world, RANK=rank, LOCAL_RANK=rank) for rank in range(2)]
    assert [process.wait(100) for process in together] == [0, 0]
    assert start(tmp_path / "one", 0, 0).wait(100) == 0
    one, two = (losses(tmp_path / name) for name in ("one", "two"))
    assert one.keys() == two.keys() and len(one) == 12
    for step in one:
        assert two[step][0] == pytest.approx(one[step][0], rel=1e-5)
