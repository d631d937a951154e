"""The baseline on vectors, the head of a frozen encoder, and the minimum number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from regard.errors import InputError
from regard.tasks.fine_tuned_model import load_fine_tuned, save_fine_tuned
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.linear_head import VectorModel
from regard.training.recipes.finetuning.report import BaselineResult, FineTuningReport

Tune = Callable[..., FineTuningReport]
STUCK = ("training.baseline=true", "training.learning_rate=1e-9", "training.num_epochs=1")  # learns nothing


@pytest.fixture(autouse=True)
def tiny_vectors(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model stands for regard-embed, whose vectors take longer."""
    monkeypatch.setattr("regard.training.recipes.finetuning.run.DEFAULT_EMBEDDING_MODEL", str(tiny_bert_folder))


def pairs(folder: Path, count: int) -> Path:
    """Pairs of words; the label says whether they are equal."""
    words = ["good", "bad", "film", "love", "dull", "funny", "long", "see"]
    rows = [(words[i % 8], words[i % 8 if i % 2 else (i + 3) % 8], i % 2) for i in range(count)]
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a} it {i}\t{b} it {i}\t{label}\n" for i, (a, b, label) in enumerate(rows)))
    return path


def test_the_baseline_is_kept_where_fine_tuning_learns_nothing(tune: Tune, files: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    report = tune(tmp_path / "run", *STUCK, on_event=lambda event: notes.append(event.line() or ""))
    assert report.baseline is not None and report.baseline.kept == "baseline" and report.baseline.folds >= 1
    scores = {name: value["accuracy"] for name, value in report.baseline.scores.items()}
    assert scores["baseline"] > scores["fine-tuning"] and scores["baseline"] > scores["majority"]
    assert any("the baseline is kept" in note for note in notes)
    assert report.scores["accuracy"] == report.baseline.dev["accuracy"]
    assert json.loads((tmp_path / "run" / "report.json").read_text())["baseline"]["kept"] == "baseline"
    model = load_fine_tuned(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "task.json").read_text())["vectors"]["num_texts"] == 1
    assert model.evaluate(files / "dev.tsv").metrics["accuracy"] == pytest.approx(report.scores["accuracy"])
    save_fine_tuned(model, tmp_path / "copy")
    texts = ["the film is good", "so dull and long"]
    first, second = (load_fine_tuned(folder).predict(texts) for folder in (tmp_path / "run", tmp_path / "copy"))
    assert first.to_dict()["predictions"] == second.to_dict()["predictions"]


def test_a_kept_baseline_is_fitted_to_a_dev_part_and_never_to_a_dev_file(
    tune: Tune, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    fit = VectorModel.fit

    def note(model: VectorModel, features: Any, *rest: Any) -> Any:
        fitted.append(len(features))
        return fit(model, features, *rest)

    monkeypatch.setattr(VectorModel, "fit", note)
    report = tune(tmp_path / "file", *STUCK)
    assert report.baseline is not None and report.baseline.kept == "baseline"
    assert fitted[-1] == report.data["train"]["examples"]
    report = tune(tmp_path / "part", *STUCK, dev=None)
    assert report.baseline is not None and report.baseline.kept == "baseline"
    assert fitted[-1] == report.data["train"]["examples"] + report.data["dev"]["examples"]


def test_fine_tuning_is_kept_where_it_is_better(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "regard.training.recipes.finetuning.linear_head.STRENGTHS", (1e-12, 1e-12)
    )  # the baseline learns nothing
    report = tune(tmp_path / "run", "training.baseline=true", "training.num_epochs=8")
    assert report.baseline is not None and report.baseline.kept == "fine-tuning"
    assert load_fine_tuned(tmp_path / "run").model.vectors is None  # type: ignore[union-attr]


def test_with_enough_dev_examples_dev_decides(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.recipes.finetuning.baseline.FEW_DEV", 40)
    report = tune(tmp_path / "run", *STUCK)
    assert report.baseline is not None and report.baseline.folds == 0 and report.baseline.kept == "baseline"
    assert report.baseline.scores["baseline"] == report.baseline.dev
    assert report.baseline.scores["fine-tuning"] == report.best.scores


def test_labels_without_a_pattern_are_said(tune: Tune, tmp_path: Path) -> None:
    path = tmp_path / "same.tsv"
    path.write_text("".join(f"the film {'so ' * i}\t{'ab'[i % 3 == 0]}\n" for i in range(24)))
    report = tune(tmp_path / "run", *STUCK, train=str(path), dev=None)
    assert report.baseline is not None
    if not report.baseline.beats_majority:
        assert "majority class" in report.to_text() and "nothing useful" in report.to_text()
    worse = report.baseline.model_copy(update={"scores": {name: {"accuracy": 60.0} for name in report.baseline.scores}})
    assert not worse.beats_majority and "Neither beats the majority class" in worse.text()


@pytest.mark.parametrize("task", ["pair", "regress"])
def test_pairs_are_encoded_separately(task: str, tune: Tune, tmp_path: Path) -> None:
    path = pairs(tmp_path, 64)
    report = tune(tmp_path / "run", *STUCK, task=task, train=str(path), dev=None)
    assert report.baseline is not None and report.baseline.kept == "baseline"
    model = load_fine_tuned(tmp_path / "run")
    vectors, width = model.model.vectors, model.model.encoder.config.hidden_size  # type: ignore[union-attr]
    assert vectors is not None and vectors.num_texts == 2
    assert model.model.head.output.in_features == 4 * width + 1  # type: ignore[union-attr]
    both = model.predict([("good it", "good it"), ("good it", "bad film it")]).to_dict()
    alone = model.predict("good it", "bad film it").to_dict()
    first, second = alone["predictions"][0], both["predictions"][1]
    for key in ("value",) if task == "regress" else ("label", "text_b"):
        assert first[key] == pytest.approx(second[key], rel=1e-4) if task == "regress" else first[key] == second[key]
    from regard.interpret.attribution.probe import task_probe

    with pytest.raises(InputError, match="separately"):
        task_probe(model, "good it", "bad it")
    if task == "regress":
        with pytest.raises(InputError, match="pairs of texts"):
            model.predict("good it")


def test_a_finished_fold_is_not_repeated(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.training.recipes.finetuning import baseline

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    whole = tune(tmp_path / "whole", *STUCK)
    with monkeypatch.context() as patch:
        patch.setattr(baseline.BaselineResult, "text", fail)
        with pytest.raises(KeyboardInterrupt):
            tune(tmp_path / "run", *STUCK)
    assert len(list((tmp_path / "run" / "seeds").glob("fold-*.json"))) == whole.baseline.folds  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.recipes.finetuning.baseline.predict", fail)  # no fold is trained again
        again = tune(tmp_path / "run", *STUCK, resume=True)
    assert again.baseline == whole.baseline
    assert not (tmp_path / "run" / "seeds").exists()


def test_a_frozen_encoder_gets_a_converged_head(tune: Tune, files: Path, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", "training.frozen=true")
    model = load_fine_tuned(tmp_path / "run")
    assert model.model.vectors is not None  # type: ignore[union-attr]
    assert report.mean["accuracy"] > 60
    again = tune(tmp_path / "again", "training.frozen=true", "run.seed=7")
    other = load_fine_tuned(tmp_path / "again")
    assert torch.equal(model.model.head.output.weight, other.model.head.output.weight)  # type: ignore[union-attr]
    assert again.mean == report.mean


def test_few_examples_take_more_epochs_unless_epochs_are_given() -> None:
    assert FineTuningConfig.load().training.min_steps > 0
    assert FineTuningConfig.load(overrides=["training.num_epochs=2"]).training.min_steps == 0
    both = FineTuningConfig.load(overrides=["training.num_epochs=2", "training.min_steps=9"])
    assert both.training.min_steps == 9


def test_a_minimum_number_of_steps_is_trained(tune: Tune, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", "training.num_epochs=1", "training.batch_size=48", "training.min_steps=5")
    assert report.best.steps == 6 and len(report.best.history) == 3


def test_a_small_lead_of_fine_tuning_is_called_chance() -> None:
    def text(fine_tuning: float, kept: Literal["baseline", "fine-tuning"]) -> str:
        scores = {"fine-tuning": {"accuracy": fine_tuning}, "baseline": {"accuracy": 90.0}}
        scores["majority"] = {"accuracy": 50.0}
        return BaselineResult(
            model="regard-embed", kept=kept, folds=3, metric="accuracy", scores=scores, dev={}, strength=1.0
        ).text()

    assert text(92.0, "baseline").endswith("the baseline is kept, as so small a lead may be chance")
    assert text(88.0, "baseline").endswith("the baseline is kept")
    assert text(99.0, "fine-tuning").endswith("the fine-tuned model is kept")
