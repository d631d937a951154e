"""Training jobs of the studio: they save a model, can be stopped, and report errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.events import drain
from regard.server.studio import training
from regard.server.studio.training import TrainingJob, TrainingJobs, safe_file_name
from regard.tasks.evaluation.evaluate import evaluate_model
from regard.tasks.fine_tuned_model import load_fine_tuned
from regard.tasks.registry import get_task
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.model_factory import ModelFactory
from regard.verbs.train import TrainRequest
from tests.server.local import run_in_thread

Ordered = Callable[..., TrainRequest]


@pytest.fixture
def order(tmp_path: Path, tiny_bert_folder: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> Ordered:
    """Returns a function that makes training requests; every step is an event."""
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    lines = [f"the film number {number} is {('bad', 'good')[number % 2]}\t{number % 2}\n" for number in range(120)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")

    def make(epochs: int = 1, **changes: Any) -> TrainRequest:
        given = {"task": "classify", "train": tmp_path / "train.tsv", "model": str(tiny_bert_folder)}
        settings = [f"training.num_epochs={epochs}"]
        return TrainRequest(**{**given, "output": tmp_path / "out", "settings": settings, **changes})

    return make


def test_a_job_saves_a_model(order: Ordered, tmp_path: Path) -> None:
    trainings, ended = TrainingJobs(run_in_thread), list[str]()
    trainings.start(order(epochs=2), ended.append).join()
    assert trainings.job is not None
    found = trainings.job.status()
    assert (found.state, found.error) == ("done", "")
    assert ended == [str(tmp_path / "out")]
    assert (found.step, found.steps, found.epoch, found.seconds_left) == (8, 8, 2, 0)  # 108 examples, 32 per step
    evaluated = drain(evaluate_model(load_fine_tuned(tmp_path / "out"), _dev(order()))).metrics
    assert evaluated.items() >= found.scores.items()
    assert found.messages[0].startswith("train: 108 examples")
    assert found.command == (
        f"regard train classify --output {tmp_path}/out --set training.num_epochs=2 --train {tmp_path}/train.tsv "
        f"--model {order().model}"
    )


def _dev(order: TrainRequest) -> ExampleSet[Any]:
    """The examples that `fit` holds out for evaluation."""
    from regard.training.recipes.finetuning.run import read_splits

    return read_splits(order.task, order.train, None, table=None, split_sizes=None)["dev"]


def test_examples_are_sampled_reproducibly() -> None:
    read = ExampleSet([f"text {number}" for number in range(100)], "file", "how", lines=list(range(1, 101)))
    some = read.sample(10)
    assert len(some.examples) == 10
    assert some == read.sample(10)
    assert [f"text {line - 1}" for line in some.lines] == some.examples
    assert some.description == "how; 10 sampled"


def test_max_examples_limits_the_sample(order: Ordered) -> None:
    trainings = TrainingJobs(run_in_thread)
    trainings.start(order(limit=40), lambda output: None).join()
    assert trainings.job is not None
    assert trainings.job.status().messages[0].startswith("40 of 120 examples")
    assert trainings.job.status().steps == 2  # 36 examples, 32 per step
    assert "--limit 40" in trainings.job.status().command


def test_a_job_can_be_stopped(order: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings, reached, goes_on = TrainingJobs(run_in_thread), threading.Event(), threading.Event()
    on_event = TrainingJob.on_event

    def on_event_and_stop(job: TrainingJob, event: Mapping[str, Any]) -> None:
        on_event(job, event)
        if event["type"] == "step" and event["step"] == 3:
            reached.set()
            assert goes_on.wait(60)

    monkeypatch.setattr(TrainingJob, "on_event", on_event_and_stop)
    thread = trainings.start(order(epochs=20), pytest.fail)
    assert reached.wait(60)
    with pytest.raises(InputError, match="is being trained; wait for it"):
        trainings.start(order(output="other"), pytest.fail)
    trainings.cancel()
    assert trainings.job is not None
    assert trainings.job.status().stopping is True
    goes_on.set()
    thread.join()
    found = trainings.job.status()
    assert (found.state, found.step, found.stopping) == ("cancelled", 3, False)
    assert found.seconds_left == pytest.approx(77 * 3 / found.steps_per_second / 3, rel=0.01)
    assert not Path(order().output).exists()  # and its name is available again


def test_stopping_does_not_delete_files_of_others(order: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings, on_event, folder = TrainingJobs(run_in_thread), TrainingJob.on_event, Path(order().output)

    def on_event_and_stop(job: TrainingJob, event: Mapping[str, Any]) -> None:
        on_event(job, event)
        if event["type"] == "step" and event["step"] == 2:
            (folder / "notes.txt").write_text("mine")
            (folder / "seeds" / "notes.txt").write_text("mine")
            job.stop.set()

    monkeypatch.setattr(TrainingJob, "on_event", on_event_and_stop)
    trainings.start(order(epochs=20), pytest.fail).join()
    assert trainings.job is not None and trainings.job.status().state == "cancelled"
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert left == ["notes.txt", "seeds/notes.txt"]


def test_shutdown_waits_for_the_current_step(order: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings, started = TrainingJobs(run_in_thread), threading.Event()
    on_event = TrainingJob.on_event

    def on_event_and_stop(job: TrainingJob, event: Mapping[str, Any]) -> None:
        started.set()
        on_event(job, event)

    monkeypatch.setattr(TrainingJob, "on_event", on_event_and_stop)
    thread = trainings.start(order(epochs=20), pytest.fail)
    assert started.wait(60)
    trainings.close()
    assert not thread.is_alive()
    assert trainings.job is not None and trainings.job.status().state == "cancelled"


def test_an_invalid_folder_name_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot be the name of a folder"):
        TrainingJobs(run_in_thread).check(Path("x" * 400))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": "nothing.tsv"}, "nothing.tsv"),
        ({"columns": ["words", "label"]}, "words"),
        ({"model": "regard-nothing"}, "no built-in model"),
    ],
)
def test_errors_are_reported(order: Ordered, changes: dict[str, Any], message: str) -> None:
    trainings = TrainingJobs(run_in_thread)
    trainings.start(order(**changes), pytest.fail).join()
    assert trainings.job is not None
    assert trainings.job.status().state == "failed"
    assert message in trainings.job.status().error


def test_an_unsuitable_base_model_leaves_no_files(order: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    def new(start: ModelFactory, seed: int) -> None:
        assert (Path(order().output) / "regard.json").is_file()
        raise InputError("it has no tasks")

    monkeypatch.setattr(ModelFactory, "new_model", new)
    trainings = TrainingJobs(run_in_thread)
    trainings.start(order(), pytest.fail).join()
    assert trainings.job is not None
    assert (trainings.job.status().state, trainings.job.status().error) == ("failed", "it has no tasks")
    assert not Path(order().output).exists()


def test_an_internal_error_is_reported(order: Ordered) -> None:
    trainings = TrainingJobs(run_in_thread)

    def done(output: str) -> None:
        raise torch.OutOfMemoryError("no room")

    trainings.start(order(), done).join()
    assert trainings.job is not None
    assert (trainings.job.status().state, trainings.job.status().error) == ("failed", "OutOfMemoryError: no room")


def test_invalid_requests_are_rejected(order: Ordered, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds a model or a run; choose another name"):
        TrainingJobs(run_in_thread).start(order(output=str(tmp_path / "held")), pytest.fail)


@pytest.mark.parametrize(
    ("given", "name"),
    [("../../etc/pass wd.tsv", "pass-wd.tsv"), ("...", "other"), ("é.csv", "é.csv"), ("a" * 200, "a" * 80)],
)
def test_file_name(given: str, name: str) -> None:
    assert safe_file_name(given, default="other") == name


def test_a_job_has_the_default_epochs_of_its_task() -> None:
    for task in ("classify", "pair", "answer"):
        config = FineTuningConfig.load(defaults={"training": get_task(task).training_defaults})
        assert training._default_epochs(task) == config.training.num_epochs
