"""Distributed training: the same samples and the same result as one process; only the main process writes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from tests.training.recipes.pretraining.runs import (
    Launcher,
    command,
    events,
    exit_codes,
    losses,
    start_processes,
    wait_for_steps,
)

STEPS = 16
PARTED: dict[str, object] = {
    "data_tokens_per_micro_batch": 128,
    "schedule_max_steps": STEPS,
}  # no dropout, because each process has its own random state


def progress_of(output: Path) -> tuple[int, int]:
    """The numbers of rows and tokens that the run has read."""
    newest = max((output / "checkpoints").glob("step-*"))
    state = json.loads((newest / "state.json").read_text())["state"]
    return state["position"]["row"], state["tokens"]


def assert_near(output: Path, single_process_run: Path) -> None:
    """Assert the same samples in every step, and equal losses up to the order of sums."""
    found, expected = (
        {event["step"]: event for event in events(each, "step")} for each in (output, single_process_run)
    )
    assert found.keys() == expected.keys() == {*range(1, STEPS + 1)}
    assert {step: event["tokens"] for step, event in found.items()} == {k: e["tokens"] for k, e in expected.items()}
    assert progress_of(output) == progress_of(single_process_run)
    for step in expected:
        assert expected[step]["losses"].keys() == {"mlm", "nsp"}
        for key in ("loss", "losses", "grad_norm"):
            assert found[step][key] == pytest.approx(expected[step][key], rel=2e-4), (step, key)
    models = [regard.load(each)[0].state_dict() for each in (output, single_process_run)]
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], atol=2e-3, rtol=0)


@pytest.fixture(scope="module")
def single_process_run(launcher: Launcher, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    output = tmp_path_factory.mktemp("alone") / "run"
    code, printed = launcher.run(command(corpus, output, **PARTED))
    assert code == 0, printed
    return output


def test_two_processes_are_one_run(launcher: Launcher, corpus: Path, single_process_run: Path, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(corpus, tmp_path, **PARTED))
    assert exit_codes(processes) == [0, 0], [process.printed for process in processes]
    assert f"{tmp_path}: {STEPS} steps" in processes[0].printed
    assert processes[1].printed == ""
    assert [len(found) for found in losses(tmp_path).values()] == [1] * STEPS
    note, *others = events(tmp_path)
    assert note["message"].startswith("2 processes, each has the whole model (ddp): parameters, gradients and ")
    assert [event["type"] for event in others] == [event["type"] for event in events(single_process_run)]
    assert_near(tmp_path, single_process_run)


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_continues_with_the_next_sample(
    before: int, after: int, launcher: Launcher, corpus: Path, single_process_run: Path, tmp_path: Path
) -> None:
    first = start_processes(launcher, command(corpus, tmp_path, **PARTED), size=before)
    wait_for_steps(tmp_path, 5)
    for process in first:
        os.kill(process.pid, signal.SIGKILL)
    exit_codes(first)
    second = start_processes(launcher, command(corpus, tmp_path, "--resume", **PARTED), size=after)
    assert exit_codes(second) == [0] * after, [process.printed for process in second]
    (resumed,) = events(tmp_path, "resume")
    assert resumed["step"] in (4, 8, 12)
    assert_near(tmp_path, single_process_run)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_stops_all(rank: int, launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(corpus, tmp_path, **PARTED | {"schedule_max_steps": 100_000}))
    wait_for_steps(tmp_path, 5)
    os.kill(processes[rank].pid, signal.SIGTERM)
    assert exit_codes(processes) == [143, 143], [process.printed for process in processes]
    step = events(tmp_path, "checkpoint")[-1]["step"]
    assert step == max(losses(tmp_path))
    assert f"stopped after step {step:,}" in processes[0].printed
    assert processes[1].printed == "terminated\n"


def test_an_error_is_printed_once(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    processes = start_processes(launcher, command(tmp_path / "empty.txt", tmp_path / "run"))
    assert exit_codes(processes) == [2, 1]
    assert processes[0].printed.startswith("error: the corpus is empty: there is no text in ")
    assert processes[1].printed == ""


def test_micro_batches_that_cannot_be_shared(launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(corpus, tmp_path, **PARTED, data_tokens_per_batch=384))
    assert exit_codes(processes) == [2, 2]
    assert re.search(
        r"3 forward passes .*data\.tokens_per_batch.* cannot be shared by 2 processes; .*data\.tokens_per_micro_batch",
        processes[0].printed,
    )


@pytest.mark.long
def test_torchrun_starts_such_processes(corpus: Path, single_process_run: Path, tmp_path: Path) -> None:
    starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regard"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*starter, *command(corpus, tmp_path, **PARTED)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(f"{tmp_path}: {STEPS} steps") == 1
    assert events(tmp_path, "finished")[0]["scores"]["mlm"]["loss"] == pytest.approx(
        events(single_process_run, "finished")[0]["scores"]["mlm"]["loss"], abs=1e-3
    )
    assert progress_of(tmp_path) == progress_of(single_process_run)
