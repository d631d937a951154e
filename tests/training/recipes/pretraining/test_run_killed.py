"""Runs in separate processes that are killed, terminated or out of disk space resume with identical results."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.training.recipes.pretraining.runs import Launcher, Process, command, events, losses, wait_for_steps


def assert_same(output: Path, uninterrupted: Path, steps: int) -> None:
    """Assert equal logged numbers, weights, and optimizer state."""
    expected = losses(uninterrupted)
    assert set(losses(output)) == set(expected) == {*range(1, steps + 1)}
    for step, found in losses(output).items():
        assert {*found} == {*expected[step]}, f"step {step}"
    for file in ("model.safetensors", f"checkpoints/step-{steps:09d}/model.safetensors"):
        assert (output / file).read_bytes() == (uninterrupted / file).read_bytes(), file


KILLS, LONG = 10, 200
RUN: dict[str, object] = {"schedule_max_steps": LONG, "model_dropout": 0.1, "model_attention_dropout": 0.1}


@pytest.fixture(scope="module")
def uninterrupted(launcher: Launcher, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of LONG steps."""
    output = tmp_path_factory.mktemp("whole") / "run"
    code, printed = launcher.run(command(source, output, **RUN))
    assert code == 0, printed
    return output


@pytest.mark.long
def test_ten_kills_change_no_bit(
    launcher: Launcher, source: Path, uninterrupted: Path, tmp_path: Path, chance: random.Random
) -> None:
    """Two kills at random times, the others after a few more steps or while a checkpoint is saved.

    The command is always the same, as a supervisor would repeat it.
    """
    moments: list[str] = []
    while len(moments) < KILLS:
        before = len(events(tmp_path, "step"))
        process = launcher.start(command(source, tmp_path, "--resume", **RUN))
        if len(moments) in (0, 5):
            time.sleep(chance.uniform(0.0, 0.6))
        else:
            wait_for_steps(tmp_path, chance.randrange(1, 6), before)
            time.sleep(chance.uniform(0.0, 0.04))
        os.kill(process.pid, signal.SIGKILL)
        code = process.wait()
        assert code == -signal.SIGKILL, f"after kills {moments}: {process.printed}"
        moments.append(f"step {len(losses(tmp_path))}")
    code, printed = launcher.run(command(source, tmp_path, "--resume", **RUN))
    assert code == 0, printed
    assert_same(tmp_path, uninterrupted, LONG)


def start_run(launcher: Launcher, arguments: list[str], output: Path, *, steps: int = 5) -> Process:
    process = launcher.start(arguments)
    wait_for_steps(output, steps)
    return process


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_saves_and_ends(
    number: signal.Signals, code: int, word: str, launcher: Launcher, source: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    process = start_run(launcher, command(source, tmp_path, **RUN), tmp_path)
    os.kill(process.pid, number)
    seen = max(losses(tmp_path))
    assert process.wait() == code, process.printed
    step = events(tmp_path, "checkpoint")[-1]["step"]
    assert step == max(losses(tmp_path)) <= min(seen + 2, LONG - 1)  # the step that was computed is finished
    *_, message, last = process.printed.splitlines()
    assert message.startswith(f"stopped after step {step:,},") and "--resume" in message and last == word
    again, printed = launcher.run(command(source, tmp_path, "--resume", **RUN))
    assert again == 0, printed
    assert f"resuming after step {step}" in printed
    assert_same(tmp_path, uninterrupted, LONG)


def test_a_full_disk_leaves_the_last_good_checkpoint(
    launcher: Launcher, source: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    process = start_run(launcher, command(source, tmp_path, **RUN), tmp_path)
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    left = sorted(os.listdir(tmp_path / "checkpoints"))
    code, printed = launcher.run(command(source, tmp_path, "--resume", **RUN), largest=100_000)
    error = printed.splitlines()[-1]
    assert code == 1 and error.startswith(f"error: {tmp_path / 'checkpoints'}"), printed
    assert "cannot be written" in error and "unchanged" in error
    assert sorted(os.listdir(tmp_path / "checkpoints")) == left
    code, printed = launcher.run(command(source, tmp_path, "--resume", **RUN))
    assert code == 0, printed
    assert_same(tmp_path, uninterrupted, LONG)


def test_two_runs_in_one_folder(launcher: Launcher, source: Path, tmp_path: Path) -> None:
    process = start_run(launcher, command(source, tmp_path, **RUN | {"schedule_max_steps": 100_000}), tmp_path)
    code, printed = launcher.run(command(source, tmp_path, "--resume", **RUN | {"schedule_max_steps": 100_000}))
    assert code == 2 and f"error: {tmp_path} is in use by process {process.pid}" in printed
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_the_optimizer_is_in_the_checkpoint(uninterrupted: Path) -> None:
    """Otherwise the comparisons here would not cover it."""
    with safe_open(uninterrupted / "checkpoints" / f"step-{LONG:09d}" / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert any(name.startswith("optimizer.0.") and name.endswith(".exp_avg_sq") for name in names)
