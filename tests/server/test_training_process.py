"""Training in a separate process: same result as in a thread, can be stopped at any time, deletes its upload."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from regard.server.studio import training
from regard.server.studio.routes import Studio
from regard.server.studio.training import TrainingJob, TrainingJobs
from regard.verbs.train import TrainRequest
from regard.worker_process import WorkerProcess
from tests.server.local import local_registry, run_in_thread

SOON = 200


def order_of(folder: Path, model: Path, **changes: Any) -> TrainRequest:
    lines = [f"the film number {number} is {('bad', 'good')[number % 2]}\t{number % 2}\n" for number in range(60)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    given = {"task": "classify", "train": folder / "train.tsv", "model": str(model), "output": folder / "out"}
    return TrainRequest(**{**given, "settings": ["training.num_epochs=1"], **changes})


@pytest.fixture
def slow(tmp_path: Path, tiny_bert_folder: Path) -> TrainRequest:
    """A training request whose data takes long to read."""
    data = tmp_path / "films.tsv.gz"
    data.write_bytes(gzip.compress(b"the film is good\t1\n" * 3_000_000, compresslevel=1))
    return order_of(tmp_path, tiny_bert_folder, train=data)


def wait_until_it_reads(process: subprocess.Popen[bytes], path: Path) -> None:
    """Returns once the process has the file open."""
    for _ in range(10 * SOON):
        assert process.poll() is None, "it has ended without reading"
        with contextlib.suppress(OSError):  # the file was closed meanwhile
            if any(os.path.samefile(link, path) for link in Path(f"/proc/{process.pid}/fd").iterdir()):
                return
        time.sleep(0.1)
    pytest.fail(f"{path} was not opened")


@pytest.mark.long
def test_a_process_gives_the_same_result_as_a_thread(
    tmp_path: Path, tiny_bert_folder: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as here: the number of threads affects the last bit
    jobs = []
    for name, run in (("there", training.run_in_process), ("here", run_in_thread)):
        trainings, ended = TrainingJobs(run), list[str]()
        order = order_of(tmp_path, tiny_bert_folder, output=tmp_path / name, limit=40)
        trainings.start(order, ended.append).join(SOON)
        assert trainings.job is not None and trainings.job.status().error == ""
        assert ended == [str(tmp_path / name)]
        jobs.append(trainings.job.status())
    assert jobs[0].scores == jobs[1].scores and jobs[0].messages == jobs[1].messages
    assert (jobs[0].step, jobs[0].steps) == (jobs[1].step, jobs[1].steps) != (0, 0)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("there", "here")]
    assert weights[0] == weights[1]


def test_a_process_can_be_stopped_while_reading_data(slow: TrainRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping does not depend on the next event."""
    trainings, processes = TrainingJobs(), list[subprocess.Popen[bytes]]()
    popen = subprocess.Popen

    def started(*arguments: Any, **named: Any) -> Any:
        processes.append(popen(*arguments, **named))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", started)
    thread = trainings.start(slow, pytest.fail, upload=True)
    while not processes:
        time.sleep(0.01)
    wait_until_it_reads(processes[0], slow.train)
    trainings.cancel()
    thread.join(SOON)
    assert trainings.job is not None and trainings.job.status().state == "cancelled"
    assert processes[0].returncode is not None
    assert not slow.train.exists() and not slow.output.exists()


def test_a_process_can_be_stopped_before_it_starts(slow: TrainRequest) -> None:
    trainings = TrainingJobs()
    thread = trainings.start(slow, pytest.fail, upload=True)
    trainings.cancel()
    thread.join(SOON)
    assert trainings.job is not None and trainings.job.status().state == "cancelled"
    assert not slow.train.exists()


def test_a_process_that_ignores_sigterm_is_killed(
    slow: TrainRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = {"type": "note", "message": "deaf"}
    ignoring_sigterm = (
        "import signal, sys; from multiprocessing.connection import Connection; "
        f"signal.signal(15, signal.SIG_IGN); Connection(1, readable=False).send({note!r}); "
    )
    program = tmp_path / "deaf"
    program.write_text(f"#!{sys.executable}\n{ignoring_sigterm}sys.stdin.read()\nwhile True: signal.pause()\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(training, "GRACE_SECONDS", 0.2)
    received, on_message = threading.Event(), TrainingJob.on_message
    monkeypatch.setattr(TrainingJob, "on_message", lambda job, line: (on_message(job, line), received.set()))
    trainings = TrainingJobs()
    thread = trainings.start(slow, pytest.fail, upload=True)
    assert received.wait(SOON)
    trainings.cancel()
    thread.join(SOON)
    assert trainings.job is not None and trainings.job.status().state == "cancelled"


def test_a_process_ends_when_the_studio_is_killed(slow: TrainRequest) -> None:
    worker = WorkerProcess("regard.server.studio.training", name="the training process", advice="")
    worker.send(slow)
    wait_until_it_reads(worker.process, slow.train)
    worker.finish()  # closes the pipe, as the operating system does when the studio is killed
    assert worker.process.wait(SOON) == 143


def test_a_process_that_is_killed_is_a_failure(slow: TrainRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    trainings = TrainingJobs()
    trainings.start(slow, pytest.fail, upload=True).join(SOON)
    assert trainings.job is not None
    status = trainings.job.status()
    assert status.state == "failed" and "exit code 1" in status.error and "memory" in status.error
    assert not slow.train.exists()


def test_the_upload_is_deleted_after_a_failure(
    tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = local_registry([str(tiny_bert_folder)])
    order = {"task": "pair", "content": "only one\tlabel\n" * 20, "name": "one.tsv", "model": str(tiny_bert_folder)}
    manager = TrainingJobs(run_in_thread)
    training.start_training(Studio(registry, training_jobs=manager), order)
    manager.wait(SOON)
    assert manager.job is not None and manager.job.status().state == "failed"
    assert "one.tsv" in manager.job.status().error  # the message may quote what the user has sent
    assert list((tmp_path / "trained").iterdir()) == []
