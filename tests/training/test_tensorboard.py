"""TensorBoard's own reader finds the scalars of a run, also of one that was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.training.events import Evaluated, Resumed, StepFinished
from regard.training.tensorboard import TensorBoardLog
from tests.training.recipes.finetuning.conftest import reviews


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def step(number: int, loss: float) -> StepFinished:
    times = {"seconds": float(number), "seconds_left": 0.0, "progress": 0.5}
    return StepFinished(step=number, loss=loss, learning_rate=0.1, losses={"mlm": loss}, **times)


def test_steps_and_evaluations_are_scalars(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path / "new" / "board")
    for event in (
        step(1, 0.5),
        step(2, 0.25).model_copy(update={"tokens_per_second": 700.0}),
        Evaluated(seconds=1.0, epoch=1, scores={"accuracy": 75.0}),
        Evaluated(seconds=1.0, step=9, scores={"mlm": {"loss": 2.0, "accuracy": 0.5}}),
    ):
        log.add(event)
    log.close()
    found = scalars(tmp_path / "new" / "board")
    assert found["train/loss"] == [(1, 0.5), (2, 0.25)] and found["train/loss/mlm"] == found["train/loss"]
    assert found["train/tokens_per_second"] == [(2, 700.0)] and found["train/steps_per_second"] == [(1, 1.0)]
    assert found["dev/accuracy"] == [(2, 75.0)] and found["dev/mlm/loss"] == [(9, 2.0)]


def test_a_resumed_run_appends_without_duplicates(tmp_path: Path) -> None:
    first = TensorBoardLog(tmp_path)
    for number in (1, 2, 3, 4):
        first.add(step(number, 0.5))
    first.close()
    second = TensorBoardLog(tmp_path)
    for event in (Resumed(step=2, seconds=2.0), step(3, 0.25), step(4, 0.125)):
        second.add(event)
    second.close()
    assert scalars(tmp_path)["train/loss"] == [(1, 0.5), (2, 0.5), (3, 0.25), (4, 0.125)]
    again = TensorBoardLog(tmp_path)  # a new run replaces the former one
    again.add(step(1, 1.0))
    again.close()
    assert scalars(tmp_path)["train/loss"] == [(1, 1.0)]


def test_training_writes_what_the_event_log_has(
    tmp_path: Path, tiny_bert_folder: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fine-tuning run that is interrupted and resumed, with two seeds."""
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    (tmp_path / "train.tsv").write_text(reviews(40), encoding="utf-8")
    options: dict[str, Any] = {
        "train": tmp_path / "train.tsv",
        "dev": tmp_path / "train.tsv",
        "model": str(tiny_bert_folder),
        "output": tmp_path / "run",
        "tensorboard": tmp_path / "board",
        "batch_size": 8,
        "epochs": 2,
        "seeds": 2,
        "device": "cpu",
    }

    def interrupt(event: Any) -> None:
        if isinstance(event, StepFinished) and (event.seed, event.step) == (1, 8):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regard.train("classify", **options, on_event=interrupt)
    report = regard.train("classify", **options, resume=True)
    for result in report.seeds:
        found = scalars(tmp_path / "board" / f"seed-{result.seed}")
        assert [number for number, _ in found["train/loss"]] == list(range(1, 11))
        accuracies = [value for _, value in found["dev/accuracy"]]
        assert accuracies == pytest.approx([scores["accuracy"] for scores in result.history])
        assert [number for number, _ in found["dev/accuracy"]] == [5, 10]
        assert max(value for _, value in found["train/learning_rate"]) > 0


def test_translation_and_pretraining_write_scalars(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    words = (tmp_path / "train.tsv", tmp_path / "text.txt")
    words[0].write_text("".join(f"the film is {n}\tder Film ist {n}\n" for n in range(20)), encoding="utf-8")
    words[1].write_text("the film is long . they see it now .\n\n" * 60, encoding="utf-8")
    small = {"model.hidden_size": 16, "model.num_hidden_layers": 1, "model.intermediate_size": 16}
    heads = {**small, "model.num_attention_heads": 2}
    regard.train_translator(
        train=[str(words[0])], output=tmp_path / "mt", tensorboard=tmp_path / "a", settings=heads, epochs=2, limit=15
    )
    found = scalars(tmp_path / "a")
    assert len(found["dev/bleu"]) == 2 and found["train/tokens_per_second"][0][1] > 0
    settings = {**heads, "schedule.max_steps": 3, "data.tokens_per_batch": 256, "data.max_length": 16}
    regard.pretrain(
        "gpt",
        corpus=[str(words[1])],
        output=tmp_path / "lm",
        tensorboard=tmp_path / "b",
        settings=settings,
        device="cpu",
    )
    found = scalars(tmp_path / "b")
    assert [number for number, _ in found["train/loss"]] == [1, 2, 3]
    assert any(tag.startswith("dev/") for tag in found)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_bert_folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'regard\[tensorboard\]'"):
        regard.fit([("a", "b")], tensorboard=tmp_path / "board", output=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .*; choose another"):
        TensorBoardLog(tmp_path / "file" / "board")
