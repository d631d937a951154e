"""Bulk jobs in several processes: the same output as in one, errors, and no process is left behind."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import worker_process
from regard.device import all_devices
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference import prediction
from regard.inference.bulk.job import BulkProgress
from regard.inference.bulk.workers import compute_in_workers
from regard.inference.embedding import bulk as embedding
from regard.inference.embedding.engine import EmbeddingEngine
from regard.inference.load_model import load_model
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.tasks.prediction.inputs import open_input
from regard.verbs.python import LocalModels
from regard.worker_process import WorkerFailure
from tests.inference.bulk.scripted import Scripted
from tests.inference.measure import embed_file
from tests.tasks.prediction.models import TASKS, random_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="worker processes are for POSIX systems")
TWO = ["cpu", "cpu"]
CPUS = [torch.device("cpu")] * 2
TEXTS = [f"the film was {'so ' * (number % 7)}long" for number in range(40)]
TEXTS[9] = ""


def compute(shards: list[list[Any]], task: Any = None, count: int = 2) -> dict[int, list[Any]]:
    """The items of each shard."""
    found: dict[int, list[Any]] = {}
    numbered = enumerate(map(iter, shards))
    for number, item in compute_in_workers(task or Scripted(), CPUS[:count], numbered, remedy="again"):
        found.setdefault(number, []).append(item["lines"].tolist() if isinstance(item, dict) else item)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were started; all have ended when the test ends."""
    found: list[subprocess.Popen[bytes]] = []
    start = worker_process.start_process

    def start_process(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        found.append(start(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(worker_process, "start_process", start_process)
    yield found
    assert all(process.returncode is not None for process in found)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def test_every_shard_is_computed_once_with_its_blocks_in_order(started: list[Any]) -> None:
    found = compute([[10 * number, 10 * number + 1] for number in range(9)])
    assert found == {number: [[10 * number], 1, [10 * number + 1], 2, None] for number in range(9)}
    assert [process.returncode for process in started] == [0, 0]


def test_the_error_is_that_of_the_first_shard(started: list[Any]) -> None:
    with pytest.raises(InputError, match=r"^first$"):
        compute([[*range(500), "first"], ["second"], ["third"], [4]])
    assert len(started) == 2


def test_a_model_that_cannot_be_loaded_is_reported_once(started: list[Any]) -> None:
    with pytest.raises(InputError, match=r"^no such model$"):
        compute([[1], [2]], Scripted("no such model"), count=1)


def test_an_unexpected_error_has_the_traceback_of_the_worker() -> None:
    error = WorkerFailure("bug", "KeyError: 'bug'", "Traceback").error()
    assert type(error) is RuntimeError and error.__notes__ == ["Traceback"]
    assert type(WorkerFailure("regard", "x").error()) is RegardError


def test_closing_ends_a_worker_that_computes(started: list[Any]) -> None:
    shards: list[list[Any]] = [[1], ["wait"]]
    steps = compute_in_workers(Scripted(), CPUS[:1], enumerate(map(iter, shards)), remedy="")
    assert next(steps)[0] == 0
    steps.close()
    assert started[0].returncode is not None


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_embedding_gives_the_same_bytes_as_one_process(
    suffix: str, file: Path, tiny_bert_folder: Path, tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"model": tiny_bert_folder, "shard_size": 4, "max_length": 8, "device": "cpu"}
    one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"
    alone = embed_file(file, one, **options)
    assert not started
    monkeypatch.setattr(EmbeddingEngine, "embed_steps", lambda *_: pytest.fail("this process computes"))
    reports: list[BulkProgress] = []
    result = embed_file(file, two, devices=TWO, on_progress=reports.append, **options)
    assert one.read_bytes() == two.read_bytes()
    assert (result.rows, result.cut, result.missing) == (alone.rows, alone.cut, alone.missing) == (40, 22, 1)
    done = [report.done for report in reports]
    assert done == sorted(done) and (done[0], done[-1]) == (0, 40)
    assert len(started) == 2
    assert not two.with_name(f"{two.name}.partial").exists()


def test_prediction_gives_the_same_bytes_as_one_process(tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder, source = tmp_path / "model", tmp_path / "in.jsonl"
    save_fine_tuned(random_model(TASKS["classify"], tiny_bert_folder), folder)
    source.write_text("".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(TEXTS)))
    loaded = load_model(folder)
    model = loaded.fine_tuned
    for name, devices in (("one", None), ("two", TWO)):
        inputs = open_input(model.task, source, keep=["id"])
        steps = prediction.predict_file(
            loaded, model, inputs, tmp_path / f"{name}.jsonl", settings={}, shard_size=5, devices=devices
        )
        result = drain(steps)
        assert (result.rows, result.blank) == (40, 1)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


@pytest.mark.parametrize("name", TASKS)
def test_tasks_can_be_sent(name: str) -> None:
    task = TASKS[name]
    assert pickle.loads(pickle.dumps(task)).to_dict() == task.to_dict()


def test_the_line_of_a_text_is_named(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_check_texts", lambda *_: None)  # it would find the text before the work
    texts = ["the film"] * 12
    texts[7] = texts[9] = "the film was so long"
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    options: dict[str, Any] = {"model": tiny_bert_folder, "max_length": 5, "long": "error", "shard_size": 2}
    messages = []
    for devices in (None, TWO):
        with pytest.raises(InputError, match=r"in\.txt line 8 ") as caught:
            embed_file(tmp_path / "in.txt", tmp_path / "out.npy", devices=devices, **options)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_killed_worker_is_an_error_and_the_same_command_continues(
    file: Path, tiny_bert_folder: Path, tmp_path: Path, started: list[Any]
) -> None:
    options: dict[str, Any] = {"model": tiny_bert_folder, "shard_size": 2, "device": "cpu"}
    embed_file(file, tmp_path / "one.npy", **options)

    output = tmp_path / "two.npy"

    def kill(progress: BulkProgress) -> None:
        # Rows are reported as done before their shard is complete; wait for the file of one.
        if list((tmp_path / "two.npy.partial").glob("[0-9]*.npz")):
            started[-1].send_signal(signal.SIGKILL)

    with pytest.raises(RegardError, match=r"for cpu .*\(SIGKILL\).*same command continues"):
        embed_file(file, output, devices=TWO, on_progress=kill, **options)
    assert not output.exists() and list((tmp_path / "two.npy.partial").glob("[0-9]*.npz"))
    assert not list((tmp_path / "two.npy.partial").glob(".*.partial*"))
    result = embed_file(file, output, **options)
    assert 0 < result.resumed < 40
    assert output.read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_few_shards_start_no_process(
    file: Path, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "start_process", lambda *_: pytest.fail("a process was started"))
    embed_file(file, tmp_path / "out.npy", model=tiny_bert_folder, shard_size=14, devices=TWO)


def test_a_model_in_memory_stays_in_this_process(
    file: Path, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import regard

    monkeypatch.setattr(worker_process, "start_process", lambda *_: pytest.fail("a process was started"))
    monkeypatch.setattr("regard.device.all_devices", lambda name: CPUS)
    regard.embed(file, output=tmp_path / "out.npy", model=regard.load(tiny_bert_folder), shard_size=2)


# Embeds a file on two devices, prints the process ids of the workers, then a line per finished shard. A worker must not
# run it again, although it has no main guard.
PROGRAM = """
import sys
import torch
import regard.device
from regard.cli.app import run
from regard import worker_process
from regard.inference.bulk.shards import ShardFolder

start, finish = worker_process.start_process, ShardFolder.finish

def start_process(*arguments, **named):
    process = start(*arguments, **named)
    print(process.pid, flush=True)
    return process

def report(self, number):
    finish(self, number)
    print("finished", flush=True)

regard.device.all_devices = lambda name: [torch.device("cpu")] * 2
worker_process.start_process, ShardFolder.finish = start_process, report
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGKILL, -9, id="SIGKILL", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("default_sigint")
def test_no_worker_outlives_the_command(
    number: signal.Signals, code: int, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("the film was so long\n" * 8_000)
    (tmp_path / "script.py").write_text(PROGRAM)
    options = ["--model", str(tiny_bert_folder), "--output", "out.npy", "--shard-size", "10", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "script.py", "embed", "in.txt", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        assert process.stdout.readline() == "finished\n"
        os.killpg(process.pid, number)  # as a terminal does
        _, error = process.communicate(timeout=200)
    assert process.returncode == code
    if number == signal.SIGINT:
        assert error.endswith("the finished part is kept in out.npy.partial: the same command continues\ninterrupted\n")
        assert "Traceback" not in error
    else:
        deadline = time.monotonic() + 20
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    """Whether a process exists; one that has ended may wait for its parent to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_all_devices(monkeypatch: pytest.MonkeyPatch, tiny_bert_folder: Path) -> None:
    assert all_devices("cpu") == [torch.device("cpu")]
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    three = [torch.device("cuda", index) for index in range(3)]
    assert all_devices("auto") == all_devices("cuda") == three
    assert all_devices("cuda:1") == [torch.device("cuda:1")]
    with LocalModels("cpu").use(str(tiny_bert_folder)) as loaded:
        assert loaded.devices == (torch.device("cpu"),)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert all_devices() == [torch.device("cuda")]
