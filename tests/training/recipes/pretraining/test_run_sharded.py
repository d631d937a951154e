"""Pretraining with FSDP2: the same result as one process, checkpoints that any number of processes continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import regard
from regard.training.checkpoint import Checkpoints
from regard.training.distributed.shards import StoredTensor
from tests.training.recipes.pretraining.runs import (
    Launcher,
    command,
    events,
    exit_codes,
    losses,
    start_processes,
    wait_for_steps,
)

STEPS = 24
# 6 forward passes per step: 1, 2, 3 or 6 processes share them. No dropout: each process has its own random state.
PARTED: dict[str, object] = {
    "data_tokens_per_batch": 384,
    "data_tokens_per_micro_batch": 64,
    "schedule_max_steps": STEPS,
    "run_checkpoint_every": '"4 steps"',
    "optimizer_name": "muon",
}
FSDP = PARTED | {"run_parallel": "fsdp"}


def steps(output: Path) -> dict[int, dict[str, float]]:
    return {event["step"]: event for event in events(output, "step")}


def largest_difference(output: Path, expected: Path, key: str = "loss") -> float:
    """The largest difference of a value over the steps of two runs that read the same tokens in every step."""
    ours, theirs = steps(output), steps(expected)
    assert ours.keys() == theirs.keys()
    assert [ours[step]["tokens"] for step in ours] == [theirs[step]["tokens"] for step in ours]
    return max(abs(ours[step][key] - theirs[step][key]) for step in ours)


def newest(output: Path) -> Path:
    return max((output / "checkpoints").glob("step-*"))


def rows_read(output: Path) -> int:
    row: int = json.loads((newest(output) / "state.json").read_text())["state"]["position"]["row"]
    return row


@pytest.fixture(scope="module")
def single_process_run(launcher: Launcher, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone") / "run"
    code, printed = launcher.run(command(corpus, output, **PARTED))
    assert code == 0, printed
    return output


@pytest.fixture(scope="module")
def sharded_run(launcher: Launcher, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("sharded") / "run"
    processes = start_processes(launcher, command(corpus, output, **FSDP))
    assert exit_codes(processes) == [0, 0], [process.printed for process in processes]
    assert processes[1].printed == ""
    return output


def test_shards_train_as_one_process(sharded_run: Path, single_process_run: Path) -> None:
    assert largest_difference(sharded_run, single_process_run) < 1e-5
    assert largest_difference(sharded_run, single_process_run, "grad_norm") < 1e-4
    assert rows_read(sharded_run) == rows_read(single_process_run)
    note = events(sharded_run, "note")[0]
    assert note["message"].startswith("2 processes, each has a part of the model (fsdp): ")


def test_the_model_folder_is_an_ordinary_one(sharded_run: Path, single_process_run: Path) -> None:
    names = [sorted(path.name for path in output.iterdir()) for output in (sharded_run, single_process_run)]
    assert names[0] == names[1]
    assert (sharded_run / "config.json").read_bytes() == (single_process_run / "config.json").read_bytes()
    heads = []
    for output in (sharded_run, single_process_run):
        with safe_open(output / "model.safetensors", framework="pt") as file:
            heads.append({name: file.get_slice(name).get_shape() for name in file.keys()})  # noqa: SIM118
    assert heads[0] == heads[1]
    models = [regard.load(output)[0].state_dict() for output in (sharded_run, single_process_run)]
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], atol=1e-4, rtol=0)


def test_each_process_writes_its_rows(sharded_run: Path, single_process_run: Path) -> None:
    place = newest(sharded_run)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert sorted(path.name for path in place.iterdir()) == ["checksums.json", *files, "shards.json", "state.json"]
    sizes = [(place / name).stat().st_size for name in files]
    whole = (newest(single_process_run) / "model.safetensors").stat().st_size
    assert all(size < 0.6 * whole for size in sizes)
    found, expected = (Checkpoints(output / "checkpoints").latest() for output in (sharded_run, single_process_run))
    assert found is not None and expected is not None and found.tensors.keys() == expected.tensors.keys()
    stored = [tensor for tensor in found.tensors.values() if isinstance(tensor, StoredTensor)]
    assert len(stored) > 100
    for name, tensor in expected.tensors.items():
        assert found.tensors[name].shape == tensor.shape and found.tensors[name].dtype == tensor.dtype


@pytest.mark.long
def test_another_number_of_processes_continues_with_the_next_sample(
    launcher: Launcher, corpus: Path, single_process_run: Path, tmp_path: Path
) -> None:
    """Killed with 2 processes and shards, then with 3, then one process to the end."""
    for size in (2, 3):
        processes = start_processes(launcher, command(corpus, tmp_path, "--resume", **FSDP), size=size)
        wait_for_steps(tmp_path, 5, len(events(tmp_path, "step")))
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        exit_codes(processes)
    last = start_processes(launcher, command(corpus, tmp_path, "--resume", **PARTED), size=1)
    assert exit_codes(last) == [0], last[0].printed
    resumed = [event["step"] for event in events(tmp_path, "resume")]
    assert resumed and all(step and step % 4 == 0 for step in resumed)
    assert largest_difference(tmp_path, single_process_run) < 1e-5
    assert rows_read(tmp_path) == rows_read(single_process_run)
    assert len({*losses(tmp_path)}) == STEPS


def test_a_killed_process_ends_the_others(launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(corpus, tmp_path, **FSDP | {"schedule_max_steps": 100_000}))
    wait_for_steps(tmp_path, 5)
    os.kill(processes[1].pid, signal.SIGKILL)
    assert exit_codes(processes) == [1, -signal.SIGKILL]  # long before ten minutes: `exit_codes` does not wait for them
    *_, line = processes[0].printed.splitlines()
    assert line.startswith("error: process 0 of 2 lost another process, which ended or did not answer for 10 minutes")
    assert Checkpoints(tmp_path / "checkpoints").latest() is not None


@pytest.mark.long
def test_a_process_that_cannot_write_leaves_the_last_checkpoint(
    launcher: Launcher, corpus: Path, tmp_path: Path
) -> None:
    arguments = command(corpus, tmp_path, **FSDP)
    largest = [0, 20_000]  # the second process cannot write its file
    processes = start_processes(launcher, arguments, largest=largest)
    assert exit_codes(processes) == [1, 1], [process.printed for process in processes]
    assert "step-000000004: cannot be written: " in processes[0].printed
    assert "(process 1); earlier checkpoints are unchanged" in processes[0].printed
    assert not any((tmp_path / "checkpoints").glob("*"))


def test_one_process_says_that_it_does_not_divide_the_model(launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    code, printed = launcher.run(command(corpus, tmp_path, **FSDP | {"schedule_max_steps": 2}))
    assert code == 0
    assert "run.parallel=fsdp divides a model between processes, and there is one, which trains it whole" in printed


def test_a_recurrent_model_is_not_divided(launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    changed = {"run_parallel": "fsdp", "data_tokens_per_micro_batch": 128}
    processes = start_processes(launcher, command(corpus, tmp_path, family="elmo", **changed))
    assert exit_codes(processes) == [2, 2]
    assert "run.parallel=fsdp cannot divide this model: the weights of its recurrent layers" in processes[0].printed


@pytest.mark.long
@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_other_families(family: str, launcher: Launcher, source: Path, tmp_path: Path) -> None:
    changed = PARTED | {"run_gradient_checkpointing": "true"}
    code, printed = launcher.run(command(source, tmp_path / "alone", family=family, **changed))
    assert code == 0, printed
    arguments = command(source, tmp_path / "shards", family=family, **changed | {"run_parallel": "fsdp"})
    processes = start_processes(launcher, arguments)
    assert exit_codes(processes) == [0, 0], [process.printed for process in processes]
    assert largest_difference(tmp_path / "shards", tmp_path / "alone") < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_fifty_steps_of_1_2_and_4_processes(optimizer: str, launcher: Launcher, corpus: Path, tmp_path: Path) -> None:
    changed = PARTED | {"data_tokens_per_batch": 512, "schedule_max_steps": 50, "optimizer_name": optimizer}
    code, printed = launcher.run(command(corpus, tmp_path / "alone", **changed))
    assert code == 0, printed
    for parallel in ("ddp", "fsdp"):
        for size in (2, 4):
            output = tmp_path / f"{parallel}-{size}"
            arguments = command(corpus, output, **changed | {"run_parallel": parallel})
            processes = start_processes(launcher, arguments, size=size)
            assert exit_codes(processes) == [0] * size, [process.printed for process in processes]
            difference = largest_difference(output, tmp_path / "alone")
            print(f"{optimizer} {parallel} {size} processes: largest difference of the loss {difference:.2e}")
            assert difference < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_torchrun_restarts_a_killed_worker(
    parallel: str, corpus: Path, single_process_run: Path, tmp_path: Path
) -> None:
    starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    starter += ["--nproc-per-node", "2", "-m", "regard"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    changed = PARTED | {"run_parallel": parallel, "schedule_max_steps": 2000}
    with (tmp_path / "printed").open("w") as printed:
        agent = subprocess.Popen(
            [*starter, *command(corpus, tmp_path / "run", **changed)], stdout=printed, stderr=printed, env=environment
        )
    try:
        wait_for_steps(tmp_path / "run", 1)
        checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
        while not checkpoints.any():
            time.sleep(0.1)
        children = subprocess.run(["pgrep", "-P", str(agent.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        deadline = time.monotonic() + 120
        while not events(tmp_path / "run", "resume"):
            assert time.monotonic() < deadline, (tmp_path / "printed").read_text()
            time.sleep(0.1)
        (resumed,) = events(tmp_path / "run", "resume")
        assert resumed["step"] > 0 and resumed["step"] % 4 == 0
    finally:
        agent.terminate()
        agent.wait(60)
