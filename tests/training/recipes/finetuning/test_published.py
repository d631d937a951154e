"""Training goes on with the head of a published model if the data has its labels; otherwise the head is new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.errors import InputError
from regard.events import Note
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.sequence_classification import SequenceClassification, SequenceScoring
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.tasks.token_tagging import TokenTagging
from regard.training.events import Events
from regard.training.recipes.finetuning.model_factory import PublishedModelFactory
from regard.training.recipes.finetuning.run import distill
from tests.parity.published import publish

Tune = Callable[..., Any]


@pytest.mark.parametrize(
    ("published", "learned", "labels"),
    [
        (SequenceClassification(["b", "a"]), TextClassification(["a", "b"]), ("b", "a")),
        (SequenceClassification(["c", "b", "a"]), PairClassification(["a", "b"]), ("c", "b", "a")),
        (SequenceClassification(["a", "b"]), TextClassification(["a", "x"]), None),
        (SequenceClassification(["a", "b"]), TextClassification(["a", "b"], multi_label=True), None),
        (SequenceClassification(["a", "b"]), TokenClassification(["a", "b"]), None),
        (SequenceScoring("x", activation="identity"), Regression(1.0, 2.0), ("value",)),
        (SequenceScoring("x", activation="sigmoid"), Regression(1.0, 2.0), None),
        (TokenTagging(["O", "I-X", "B-X"]), TokenClassification(["O", "B-X", "I-X"]), ("O", "I-X", "B-X")),
        (TokenTagging(["O", "I-X"]), TokenClassification(["O", "B-X", "I-X"]), None),
        (QuestionAnswering(), QuestionAnswering(0.0), ()),
        (QuestionAnswering(), TextClassification(["a", "b"]), None),
    ],
)
def test_which_head_goes_on(published: Task[Any], learned: Task[Any], labels: tuple[str, ...] | None) -> None:
    task = published.continued(learned)
    assert (None if task is None else task.labels) == labels
    if task is not None:
        assert isinstance(task, type(learned))


@pytest.mark.parametrize("labels", [["pos", "neg"], ["good", "bad"]])
def test_a_run_starts_with_the_head_or_a_new_one(labels: list[str], tune: Tune, tmp_path: Path) -> None:
    publish("modernbert", "SequenceClassification", tmp_path / "start", labels=labels, classifier_pooling="mean")
    events: list[Any] = []
    settings = ["training.num_epochs=1", "training.learning_rate=1e-12", "training.baseline=false"]
    tune(tmp_path / "run", *settings, model=str(tmp_path / "start"), on_event=events.append)
    notes = " ".join(event.message for event in events if isinstance(event, Note))
    goes_on = labels == ["pos", "neg"]
    assert ("the head of start goes on" in notes, "the head is new" in notes) == (goes_on, not goes_on)
    trained = regard.load(tmp_path / "run")
    assert trained.labels == (("pos", "neg") if goes_on else ("neg", "pos"))
    before, after = (regard.load(tmp_path / name).predict("a film").predictions[0] for name in ("start", "run"))
    scores = dict(zip(trained.labels, before["probabilities"].values(), strict=True))
    assert (after["probabilities"] == pytest.approx(scores, abs=1e-4)) == goes_on
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    row = torch.tensor([trained.input_builder.sequences([("a film", None)])[0].ids])
    assert theirs(row).logits.softmax(-1)[0].tolist() == pytest.approx([*after["probabilities"].values()], abs=1e-5)


def test_inputs_stay_those_of_the_published_decoder(tmp_path: Path) -> None:
    publish("llama", "SequenceClassification", tmp_path / "start", labels=["a", "b"])
    start = regard.load(tmp_path / "start")
    factory = PublishedModelFactory(TextClassification(["a", "b"]), start, length=12)
    assert [row.ids for row in factory.rows.sequences([("ab", "c")])] == [
        row.ids for row in start.input_builder.sequences([("ab", "c")])
    ]
    assert factory.rows.max_length == 12
    factory.fine_tuned_model(factory.new_model(0)).save(tmp_path / "trained")
    trained = regard.load(tmp_path / "trained")
    assert type(trained.task) is TextClassification
    texts = ["ab", ["ab", "c"][0]]
    assert trained.predict(texts).predictions == start.predict(texts).predictions


def test_a_trained_reader_keeps_its_threshold(tmp_path: Path) -> None:
    publish("bert", "QuestionAnswering", tmp_path / "start", labels=2)
    factory = PublishedModelFactory(QuestionAnswering(0.5), regard.load(tmp_path / "start"), length=20)
    factory.fine_tuned_model(factory.new_model(0)).save(tmp_path / "trained")
    trained = regard.load(tmp_path / "trained")
    assert (trained.task.threshold, trained.length) == (0.5, 20)


def test_a_published_teacher_is_refused(files: Path, tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path / "start", labels=["neg", "pos"])
    train = str(files / "train.tsv")
    events: Events[Any] = distill(tmp_path / "start", train, train, layers=1, output=tmp_path / "run")
    with pytest.raises(InputError, match="found a published model"):
        list(events)
