"""`regard.fit` and the options of training that it shares with `regard train`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

import regard
from regard.errors import InputError
from regard.events import Event
from regard.settings import SettingsFile
from regard.tasks.fine_tuned_model import predict
from regard.tasks.task import TaskInput
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.training.events import Evaluated, StepFinished, curve_lines, sparkline
from regard.training.recipes.finetuning.config import FineTuningConfig
from tests.training.recipes.finetuning.conftest import reviews

pandas = pytest.importorskip("pandas")
FAST: dict[str, Any] = {"batch_size": 16, "learning_rate": 3e-3, "max_length": 32, "device": "cpu"}


@pytest.fixture
def fit(tiny_bert_folder: Path, one_thread: None) -> Callable[..., Any]:
    return lambda data, **options: regard.fit(
        data, **{"model": tiny_bert_folder, "epochs": 1, "baseline": False, **FAST, **options}
    )


@pytest.fixture(scope="module")
def frame() -> Any:
    rows = [line.split("\t") for line in reviews(64).splitlines()]
    return pandas.DataFrame({"id": range(64), "review": [row[0] for row in rows], "stars": [row[1] for row in rows]})


def weights(model: Any) -> Tensor:
    return torch.cat([parameter.flatten() for parameter in model.model.parameters()])


def test_all_forms_of_data_give_the_same_model(fit: Callable[..., Any], frame: Any, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    pairs = list(zip(frame["review"], frame["stars"], strict=True))
    columns = {"text": "review", "label": "stars"}
    models = [
        fit(frame, **columns),
        fit(str(tmp_path / "reviews.csv"), **columns),
        fit(frame.to_dict("records"), **columns),
        fit(pairs),
        fit(frame[["review", "stars"]]),
    ]
    first = weights(models[0])
    assert all(torch.equal(weights(model), first) for model in models)
    assert models[0].task.labels == ("neg", "pos") and not models[0].report.output
    assert models[0].report.mean["accuracy"] > 0 and "scores on dev" in str(models[0].report)
    examples = [TextClassification.example(text) for text in frame["review"][:3]]
    assert predict(models[0], examples, device=torch.device("cpu"))[0]["label"] in ("neg", "pos")


def test_fit_trains_as_the_command_does(fit: Callable[..., Any], frame: Any, tmp_path: Path) -> None:
    model = fit(frame, text="review", label="stars", dev=frame, output=tmp_path / "fit", seed=3, warmup_ratio=0.2)
    settings = {"training.max_length": 32, "training.warmup_ratio": 0.2, "training.baseline": False, "run.seed": 3}
    options: dict[str, Any] = {"epochs": 1, "batch_size": 16, "learning_rate": 3e-3, "device": "cpu"}
    saved = json.loads((tmp_path / "fit" / "report.json").read_text())
    report = regard.train(
        "classify",
        train=frame,
        dev=frame,
        columns=["review", "stars"],
        model=saved["model"],
        output=tmp_path / "train",
        settings=settings,
        **options,
    )
    assert (tmp_path / "fit" / "model.safetensors").read_bytes() == (tmp_path / "train/model.safetensors").read_bytes()
    assert report.mean == model.report.mean and report.settings == model.report.settings
    assert report._reproduce["cli"].startswith("regard train classify") and "--train FILE" in report._reproduce["cli"]
    options = {"text": "review", "label": "stars", "dev": frame, "seed": 3, "warmup_ratio": 0.2}
    again = fit(frame, output=tmp_path / "fit", resume=True, **options)
    assert again.report.mean == model.report.mean


def test_real_messages_with_missing_labels(
    fit: Callable[..., Any], shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """SMS Spam as a CSV with a BOM, CRLF, quotes and emoji, and as a DataFrame with NaN."""
    lines = shared_data("sms-spam/SMSSpamCollection").read_text(encoding="utf-8").splitlines()[:80]
    rows = [{"id": n, "message": f"{m} 😀", "kind": k} for n, (k, _, m) in enumerate(x.partition("\t") for x in lines)]
    for index in (3, 40):
        rows[index]["kind"] = ""
    with (tmp_path / "sms.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, ["id", "message", "kind"], lineterminator="\r\n", delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    frame = pandas.DataFrame(rows)
    frame.loc[[3, 40], "kind"] = np.nan
    columns = {"text": "message", "label": "kind"}
    for data, where in ((tmp_path / "sms.csv", r"sms\.csv line 5"), (frame, "the DataFrame row 4")):
        with pytest.raises(InputError, match=f"{where} has no label .* --missing skip"):
            fit(data, **columns)
        events: list[Event] = []
        model = fit(data, missing="skip", callbacks=[events.append], **columns)
        assert sum(about["examples"] for about in model.report.data.values()) == 78
        assert [1 for event in events if (event.line() or "").startswith("train: 2 left out: has no label")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 3}, "fit has no argument 'epoch'; did you mean 'epochs'"),
        ({"num_epochs": 3}, "did you mean 'epochs'"),
        ({"weight_deca": 0.1}, "did you mean 'weight_decay'"),
        ({"epochs": 0}, r"training\.num_epochs is 0"),
        ({"text": "reviw", "label": "stars"}, "no column 'reviw'; did you mean 'review'"),
        ({"text": "review"}, "label: name this column too"),
        ({"text": "review", "text_pair": "id", "label": "stars"}, 'for two texts use task="pair"'),
        ({"class_weights": {"good": 2.0}}, "no class 'good'"),
        ({"class_weights": "balance"}, r"class_weights is 'balance'; expected 'none' or 'balanced'"),
        ({"task": "clasify"}, "did you mean 'classify'"),
        ({"resume": True}, "there is none; name it"),
    ],
)
def test_errors_name_the_remedy(fit: Callable[..., Any], frame: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(frame, **options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("reviews", "there is no file reviews"),
        ([], "empty list"),
        (7, "the data is int"),
        (["a good film"], r"item 0 of the list is 'a good film'; expected a dictionary, or \(text, label\)"),
        (pandas.DataFrame({"text": []}), "the DataFrame is empty"),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "two columns named 'text'"),
    ],
)
def test_data_of_the_wrong_kind(fit: Callable[..., Any], data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(data)


def test_a_loss_function_replaces_that_of_the_task(fit: Callable[..., Any], frame: Any, tmp_path: Path) -> None:
    shapes = []

    def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
        shapes.append((logits.shape, targets.shape))
        cross_entropy = F.cross_entropy(logits, targets, reduction="none")
        return ((1 - torch.exp(-cross_entropy)) ** 2 * cross_entropy).mean()

    plain, focal = fit(frame, epochs=2), fit(frame, epochs=2, loss=focal_loss, output=tmp_path / "focal")
    assert shapes[0] == ((16, 2), (16,))
    assert focal.report.best.losses[0] < plain.report.best.losses[0] / 2, "focal loss is lower by (1 - p)^2"
    assert torch.equal(weights(fit(frame, epochs=2, loss=F.cross_entropy)), weights(plain))
    with pytest.raises(InputError, match=r"no run to resume: .*'test_a_loss.*focal_loss' .*None"):
        fit(frame, epochs=2, output=tmp_path / "focal", resume=True)


@pytest.mark.parametrize(
    ("task", "file", "dimensions"),
    [
        ("pair", "rte/val.tsv", (2, 1)),
        ("regress", "stsb/sts-dev.csv", (1, 1)),
        ("choose", "hellaswag/hellaswag_val_full.txt.bz2", (2, 1)),
        ("tag", "conll2003/eng.testa", (2, 1)),
        ("answer", "squad/squaddev_v1.1.json.gz", (2, 1)),
    ],
)
def test_shapes_of_logits_and_targets(
    shared_data: Callable[[str], Path], fit: Callable[..., Any], task: str, file: str, dimensions: tuple[int, int]
) -> None:
    found = set()

    def record(logits: Tensor, targets: Tensor) -> Tensor:
        assert len(logits) == len(targets) and (logits.dim() == 1 or 0 <= targets.max() < logits.shape[1])
        found.add((logits.dim(), targets.dim()))
        return logits.float().clamp(-9, 9).square().mean()

    fit(shared_data(file), task=task, limit=12, loss=record)
    assert found == {dimensions}


def test_callbacks_see_every_event_and_may_stop(fit: Callable[..., Any], frame: Any) -> None:
    seen: list[Event] = []

    def stop_after_two(event: Event) -> bool:
        seen.append(event)
        return isinstance(event, Evaluated) and event.epoch == 2

    model = fit(frame, epochs=9, callbacks=[stop_after_two, lambda event: 1])
    assert len(model.report.best.history) == 2 and model.report.best.steps == 8
    assert seen[0].type == "note" and seen[-1].type == "finished" and any(isinstance(e, StepFinished) for e in seen)
    mid = fit(frame, epochs=9, callbacks=[lambda event: isinstance(event, StepFinished) and event.step == 1])
    assert mid.report.best.steps == 4, "the epoch is finished, so that there is a score"

    def fail(event: Event) -> None:
        if isinstance(event, Evaluated):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(frame, callbacks=[fail])


def test_early_stopping_keeps_the_best_epoch(tune: Callable[..., Any], tmp_path: Path) -> None:
    report = tune(
        tmp_path / "run", "training.num_epochs=9", "training.early_stopping_patience=2", "training.learning_rate=1e-7"
    )
    best = report.best
    assert best.epoch == 1 and len(best.history) == len(best.losses) == 3
    assert best.scores == best.history[0]
    text = str(report)
    assert "3 epochs" in text and "best: epoch 1" in text
    assert "| 3 | " in (tmp_path / "run" / "report.md").read_text() and "train loss" in report.markdown()


def test_a_resumed_run_has_the_same_learning_curve(tune: Callable[..., Any], tmp_path: Path) -> None:
    whole = tune(tmp_path / "whole", "run.checkpoint_every=5 steps")

    def crash(event: Any) -> None:
        if event.type == "checkpoint" and event.step == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "cut", "run.checkpoint_every=5 steps", on_event=crash)
    resumed = tune(tmp_path / "cut", "run.checkpoint_every=5 steps", resume=True)
    assert resumed.best.losses == whole.best.losses and len(whole.best.losses) == 3
    steps = [json.loads(line) for line in (tmp_path / "whole" / "events.jsonl").read_text().splitlines()]
    first = [event["loss"] for event in steps if event["type"] == "step" and event["epoch"] == 1]
    assert whole.best.losses[0] == pytest.approx(np.mean(first), rel=1e-5)


def inputs(targets: list[Any]) -> list[TaskInput]:
    return [TaskInput((), index, target) for index, target in enumerate(targets)]


def test_class_weights_equal_those_of_scikit_learn(shared_data: Callable[[str], Path]) -> None:
    lines = shared_data("sms-spam/SMSSpamCollection").read_text(encoding="utf-8").splitlines()[:1000]
    labels = [line.partition("\t")[0] for line in lines]
    task = TextClassification(["ham", "spam"])
    expected = compute_class_weight("balanced", classes=np.array(["ham", "spam"]), y=np.array(labels))
    targets = inputs([task._target(label) for label in labels])
    assert task.class_weights(targets, "balanced").tolist() == pytest.approx(expected)  # type: ignore[union-attr]
    assert task.class_weights(targets, "none") is None
    assert task.class_weights(targets, {"spam": 5}).tolist() == [1, 5]  # type: ignore[union-attr]
    logits, logits_targets = torch.randn(1000, 2), torch.tensor([item.target for item in targets])
    loss = task.loss(logits, targets, task.loss_function(task.class_weights(targets, "balanced")))
    weight = torch.tensor(expected, dtype=torch.float)
    assert torch.allclose(loss, F.cross_entropy(logits, logits_targets, weight=weight))


def test_class_weights_of_tags_and_of_several_labels() -> None:
    tags = TokenClassification(["O", "B-PER", "I-PER"])
    found = tags.class_weights(inputs([[0, 0, 1], [0, 0, 0]]), "balanced")
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=np.array([0, 0, 1, 0, 0, 0]))
    assert found.tolist() == pytest.approx([*expected, 1.0])  # type: ignore[union-attr]
    labels = TextClassification(["rude", "toxic"], multi_label=True)
    items = inputs([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    found = labels.class_weights(items, "balanced")
    assert found.tolist() == [1.0, 1.0], "half of the texts are rude; no text is toxic"  # type: ignore[union-attr]
    logits = torch.randn(4, 2)
    loss = labels.loss(logits, items, labels.loss_function(torch.tensor([3.0, 1.0])))
    targets = torch.tensor([item.target for item in items])
    positive = torch.tensor([3.0, 1.0])
    assert torch.equal(loss, F.binary_cross_entropy_with_logits(logits, targets, pos_weight=positive))


def test_class_weights_are_settings_of_the_run(tune: Callable[..., Any], tmp_path: Path) -> None:
    report = tune(tmp_path / "run", 'training.class_weights={pos = 4, "neg" = 0.5}', "training.num_epochs=1")
    assert report.settings["training"]["class_weights"] == {"pos": 4.0, "neg": 0.5}
    saved: SettingsFile = FineTuningConfig.load(tmp_path / "run" / "config.toml")
    assert saved.model_dump()["training"]["class_weights"] == {"pos": 4.0, "neg": 0.5}
    with pytest.raises(InputError, match="class weights are for tasks with classes"):
        data = [(f"film {number}", number) for number in range(20)]
        regard.fit(data, task="regress", class_weights="balanced", model=report.model)


def test_sparklines() -> None:
    assert sparkline([0, 7, 3.5]) == "▁█▅" and sparkline([1, 1]) == "▁▁"
    assert curve_lines([0.5], [{"f1": 1.0}], "f1") == []
    loss, score = curve_lines([0.5, 0.25], [{"f1": 10.0}, {"f1": 12.5}], "f1", best=2)
    assert "0.500 █▁ 0.250  2 epochs" in loss and "10.00 ▁█ 12.50  best: epoch 2" in score


def test_texts_and_labels_as_two_arguments(fit: Callable[..., Any]) -> None:
    texts, labels = [f"film {number}" for number in range(24)], ["yes", "no"] * 12
    with pytest.raises(TypeError, match=r"2 were given.*regard\.fit\(list\(zip\(texts, labels\)\)\)"):
        regard.fit(texts, labels)  # type: ignore[arg-type]
    assert fit(list(zip(texts, labels, strict=True))).labels == ("no", "yes")
