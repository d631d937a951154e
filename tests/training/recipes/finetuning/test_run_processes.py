"""Fine-tuning in several processes: each batch is shared, and the losses are those of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regard.tasks.fine_tuned_model import load_fine_tuned
from tests.training.recipes.pretraining.runs import (
    Launcher,
    Process,
    events,
    exit_codes,
    start_processes,
    wait_for_steps,
)

# 13 steps per epoch, of which the last has 1 example for all processes; no dropout: each has its own random state.
SETTINGS = {
    "training.num_epochs": 2,
    "training.batch_size": 8,
    "training.learning_rate": 3e-3,
    "training.max_length": 32,
    "training.dropout": 0.0,
    "run.checkpoint_every": '"5 steps"',
}
Command = Callable[..., list[str]]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    modules = ("regard.training.recipes.finetuning.run", "torch.distributed.fsdp")
    launcher = Launcher(tmp_path_factory.mktemp("printed"), *modules)
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def command(files: Path, tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("data")
    lines = (files / "train.tsv").read_text().splitlines(keepends=True)
    (folder / "train.tsv").write_text("".join([*lines, lines[0]]))
    tags = ["the O\nfilm B-X\nis O\nlong B-Y\n\n", "they B-X\nsee O\n\n", "it O\nis O\nso O\nlong B-Y\nnow O\n\n"]
    (folder / "tags.txt").write_text("".join(tags[i % 3] for i in range(25)))

    def arguments(output: Path, *more: str, task: str = "classify", **changed: object) -> list[str]:
        train, dev = folder / "train.tsv", files / "dev.tsv"
        if task == "tag":
            train = dev = folder / "tags.txt"
        settings = SETTINGS | {key.replace("_", ".", 1): value for key, value in changed.items()}
        values = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        data = ["--train", str(train), "--dev", str(dev), "--model", str(tiny_bert_folder)]
        return ["train", task, *data, "-o", str(output), "--device", "cpu", *values, *more]

    return arguments


def largest_difference(output: Path, expected: Path) -> float:
    ours, theirs = ({e["step"]: e["loss"] for e in events(each, "step")} for each in (output, expected))
    assert ours.keys() == theirs.keys() and len(ours) > 5
    return max(abs(ours[step] - theirs[step]) for step in ours)


def run(launcher: Launcher, arguments: list[str], size: int) -> list[Process]:
    processes = start_processes(launcher, arguments, size=size)
    assert exit_codes(processes) == [0] * size, [process.printed for process in processes]
    return processes


CASES = {
    "adversarial": {"run_parallel": "fsdp"},
    "words of sentences": {"task": "tag", "run_parallel": "ddp", "training_adversarial_epsilon": 0.0},
    "three processes": {"run_parallel": "ddp", "size": 3},
    "four shards": {"run_parallel": "fsdp", "size": 4, "training_optimizer": "muon"},
    "sharded words": {"task": "tag", "run_parallel": "fsdp", "run_gradient_checkpointing": "true"},
    "class weights": {"run_parallel": "fsdp", "training_class_weights": "balanced"},
    "frozen encoder": {"task": "tag", "run_parallel": "fsdp", "training_frozen": "true"},
    "unfrozen layer by layer": {"run_parallel": "fsdp", "training_unfreeze": 0.5},
    "unfrozen replicas": {"run_parallel": "ddp", "training_unfreeze": 0.5},
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values())
def test_processes_share_each_batch(
    case: dict[str, object], launcher: Launcher, command: Command, tmp_path: Path
) -> None:
    changed = dict(case)
    size = int(str(changed.pop("size", 2)))
    run(launcher, command(tmp_path / "alone", **changed | {"run_parallel": "ddp"}), 1)
    processes = run(launcher, command(tmp_path / "shared", **changed), size)
    difference = largest_difference(tmp_path / "shared", tmp_path / "alone")
    print(f"{case}: largest difference of the loss {difference:.2e}")
    assert difference < 1e-5
    assert str(tmp_path / "shared") in processes[0].printed
    # torch itself warns that the layers are not yet frozen when it first looks.
    assert [line for line in processes[1].printed.splitlines() if "find_unused_parameters" not in line] == []
    names = [sorted(p.name for p in (tmp_path / name).iterdir()) for name in ("shared", "alone")]
    assert names[0] == names[1]
    scores = [events(tmp_path / name, "finished")[0]["scores"] for name in ("shared", "alone")]
    assert scores[0] == pytest.approx(scores[1])
    assert load_fine_tuned(tmp_path / "shared").task.labels == load_fine_tuned(tmp_path / "alone").task.labels


@pytest.mark.long
def test_another_number_of_processes_continues(launcher: Launcher, command: Command, tmp_path: Path) -> None:
    changed: dict[str, object] = {"training_num_epochs": 4}
    run(launcher, command(tmp_path / "alone", **changed), 1)
    output = tmp_path / "run"
    for parallel, size in (("fsdp", 2), ("ddp", 3)):
        processes = start_processes(
            launcher, command(output, "--resume", **changed | {"run_parallel": parallel}), size=size
        )
        wait_for_steps(output, 16, len(events(output, "step")))
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        exit_codes(processes)
    run(launcher, command(output, "--resume", **changed), 1)
    resumed = [event["step"] for event in events(output, "resume")]
    assert resumed and all(resumed)
    assert largest_difference(output, tmp_path / "alone") < 1e-5
    last = [events(each, "evaluation")[-1] for each in (output, tmp_path / "alone")]
    assert last[0]["train_loss"] == pytest.approx(last[1]["train_loss"], abs=1e-5)


def test_bad_settings(launcher: Launcher, command: Command, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(tmp_path / "run", training_batch_size=1))
    assert exit_codes(processes) == [2, 2]
    assert "training.batch_size is 1, fewer examples than the 2 processes" in processes[0].printed
