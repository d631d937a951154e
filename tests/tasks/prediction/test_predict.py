"""Predictions row by row: every task, tables, DataFrames, and the methods of `FineTunedModel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import regard
from regard.data.examples import Example
from regard.errors import InputError
from regard.events import Event, Note, ResultItem
from regard.tasks.fine_tuned_model import FineTunedModel, predict
from regard.tasks.prediction import predict as module
from regard.tasks.prediction.inputs import open_input
from regard.tasks.prediction.predict import prediction_events
from tests.tasks.prediction.models import ANSWERED, MESSY, TASKS, random_model

CPU = torch.device("cpu")
Make = Callable[[str], FineTunedModel]
TEXTS = ["so long", "a good film that they love", "bad"]


@pytest.fixture
def make(tiny_bert_folder: Path) -> Make:
    return lambda name: random_model(TASKS[name], tiny_bert_folder)


INPUTS: dict[str, Any] = {
    "classify": TEXTS,
    "multi": TEXTS,
    "pair": [(text, "the film") for text in TEXTS],
    "regress": TEXTS,
    "choose": [(text, "one\ntwo") for text in TEXTS],
    "tag": TEXTS,
    "answer": [("what", text) for text in TEXTS],
}


@pytest.mark.parametrize("name", TASKS)
def test_rows_are_predicted_as_examples_are(name: str, make: Make) -> None:
    model = make(name)
    examples: list[Example] = [
        model.task.example(*([item] if isinstance(item, str) else item)) for item in INPUTS[name]
    ]
    expected = predict(model, examples, device=CPU)
    result = model.predict(INPUTS[name])
    assert result.predictions == [{"row": number, **one} for number, one in enumerate(expected)]
    assert (result.rows, result.blank, result.truncated) == (3, 0, 0)
    headers, rows = result.to_table()
    assert headers == ["row", *model.task.prediction_columns]
    assert [dict(zip(headers, row, strict=True)) for row in rows] == [
        {"row": number, **model.task.to_columns(one)} for number, one in enumerate(expected)
    ]


def test_columns_of_each_task(make: Make) -> None:
    columns = {name: list(task.prediction_columns) for name, task in TASKS.items()}
    assert columns == {
        "classify": ["label", "probability", "p_bad", "p_good"],
        "multi": ["labels", "p_bad", "p_good", "p_long"],
        "pair": ["label", "probability", "p_no", "p_yes"],
        "regress": ["value"],
        "choose": ["choice", "ending", "probability", "probabilities"],
        "tag": ["entities"],
        "answer": ["answer", "start", "end", "score"],
    }
    text = "they love a good film"
    (entities,) = (row[1] for row in make("tag").predict([text]).to_table()[1])
    assert entities
    for entity in entities:
        assert set(entity) == {"text", "label", "start", "end", "score"}
        assert text[entity["start"] : entity["end"]] == entity["text"]
    (answer,) = make("answer").predict([("what", text)]).to_table()[1]
    assert text[answer[2] : answer[3]] == answer[1]


def test_blank_rows_have_empty_answers(make: Make, tmp_path: Path) -> None:
    (tmp_path / "messy.csv").write_bytes(MESSY)
    model = make("classify")
    result = model.predict(tmp_path / "messy.csv", keep=["id", "stars"])
    assert [one["row"] for one in result.predictions if one["label"] is not None] == ANSWERED
    assert result.blank == 2
    headers, rows = result.to_table()
    assert headers == ["row", "line", "id", "stars", "label", "probability", "p_bad", "p_good"]
    assert rows[1] == [1, 3, "8", "3", None, None, None, None]
    alone = model.predict(['a fine; "good" film', "so\nlong \N{GRINNING FACE}", "bad"]).predictions
    for row, expected in zip(ANSWERED, alone, strict=True):
        assert result.predictions[row]["label"] == expected["label"]
        np.testing.assert_allclose(
            list(result.predictions[row]["probabilities"].values()),
            list(expected["probabilities"].values()),
            rtol=1e-4,
        )


def test_truncated_texts_are_counted(make: Make) -> None:
    result = make("classify").predict(["a film " * 100, "bad"])
    assert result.truncated == 1
    assert any("64 tokens and was cut" in note for note in result.notes())


def test_a_data_frame_gets_columns(make: Make) -> None:
    model = make("classify")
    frame = pandas.DataFrame(
        {"label": ["x", "y", "z"], "review": ["a good film", None, "bad"], "id": [3, 1, 3]}, index=[5, 5, 2]
    )
    before = frame.copy()
    found = model.predict(frame, columns=["review"])
    assert list(found.columns) == ["label", "review", "id", "predicted_label", "probability", "p_bad", "p_good"]
    assert list(found.index) == [5, 5, 2]
    pandas.testing.assert_frame_equal(frame, before)
    pandas.testing.assert_frame_equal(found[["label", "review", "id"]], before)
    expected = model.predict(["a good film", None, "bad"]).predictions
    assert [None if pandas.isna(label) else label for label in found["predicted_label"]] == [
        one["label"] for one in expected
    ]
    assert found["p_good"].iloc[2] == expected[2]["probabilities"]["good"]
    assert np.isnan(found["p_good"].iloc[1])
    same = regard.predict(model, frame, columns=["review"])
    pandas.testing.assert_frame_equal(same, found)


def test_a_data_frame_with_several_texts_needs_columns(make: Make) -> None:
    frame = pandas.DataFrame({"first": ["a good film here", "bad one"], "note": ["so very long a note", "it was bad"]})
    with pytest.raises(InputError, match="columns"):
        make("classify").predict(frame)


def test_only_one_group_of_rows_is_held(make: Make) -> None:
    """Rows are generated as they are needed: never more than a group ahead of the predictions."""
    model = make("classify")
    pulled = 0

    def rows() -> Any:
        nonlocal pulled
        for row in open_input(model.task, ["a film"] * 5000).rows:
            pulled += 1
            yield row

    inputs = open_input(model.task, ["a film"])
    endless = type(inputs)(inputs.name, inputs.description, (), rows(), None, False)
    done = 0
    for event in prediction_events(model, endless, group_size=100):
        if isinstance(event, ResultItem):
            done += 1
            assert pulled - done < 100
    assert done == 5000


def test_load_returns_what_was_trained(make: Make, tmp_path: Path) -> None:
    made = make("classify")
    made.save(tmp_path / "model")
    model = regard.load(tmp_path / "model")
    assert isinstance(model, FineTunedModel)
    assert model.labels == ("bad", "good")
    assert repr(model) == f"FineTunedModel('{tmp_path / 'model'}', classify, bert, labels=['bad', 'good'], length=64)"
    expected = made.predict(TEXTS).predictions
    assert model.predict(TEXTS).predictions == expected
    assert regard.predict(model, TEXTS).predictions == expected
    assert regard.predict(tmp_path / "model", TEXTS, device="cpu").predictions == expected
    encoder, tokenizer = model
    assert encoder is model.model.encoder
    assert tokenizer is model.tokenizer
    # It stands for a model wherever a verb takes one.
    vectors = regard.embed(TEXTS, model=model).vectors
    np.testing.assert_array_equal(vectors, regard.embed(TEXTS, model=(encoder, tokenizer)).vectors)
    np.testing.assert_array_equal(vectors, regard.Embedder(model, device="cpu").transform(TEXTS))
    (tmp_path / "labeled.tsv").write_text("a film\tgood\nso long\tbad\n", encoding="utf-8")
    from_file = model.evaluate(tmp_path / "labeled.tsv")
    frame = pandas.DataFrame({"id": [1, 2], "review": ["a film", "so long"], "stars": ["good", "bad"]})
    assert from_file.n == 2
    assert model.evaluate(frame, columns=["review", "stars"]).metrics == from_file.metrics
    assert regard.evaluate(model, data=tmp_path / "labeled.tsv").metrics == from_file.metrics
    model.save(tmp_path / "copy")
    assert regard.load(tmp_path / "copy").predict("a film").predictions == model.predict("a film").predictions


def test_load_of_a_pretrained_model_is_a_pair(tiny_bert_folder: Path) -> None:
    loaded = regard.load(tiny_bert_folder)
    assert isinstance(loaded, tuple)
    assert len(loaded) == 2


def test_a_fitted_estimator_predicts(tiny_bert_folder: Path) -> None:
    classifier = regard.TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu")
    with pytest.raises(InputError, match="not fitted"):
        regard.predict(classifier, ["a film"])
    classifier.fit(["a good film", "so bad"] * 4, ["yes", "no"] * 4)
    result = regard.predict(classifier, ["a film", "bad"])
    np.testing.assert_allclose(
        [list(one["probabilities"].values()) for one in result.predictions],
        classifier.predict_proba(["a film", "bad"]),
        rtol=1e-5,
    )


def test_groups_are_sorted_by_length_for_speed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is predicted in one call, which batches texts of similar length."""
    sizes: list[int] = []
    original = module.predict_steps

    def steps(model: Any, examples: Any, **options: Any) -> Any:
        sizes.append(len(examples))
        return original(model, examples, **options)

    monkeypatch.setattr(module, "predict_steps", steps)
    make("classify").predict(["a film"] * 600)
    assert sizes == [600]


def test_the_columns_of_training_are_used_and_their_number_is_required(make: Make, tmp_path: Path) -> None:
    model = replace(make("pair"), text_columns=("premise", "hypothesis"))
    model.save(tmp_path / "model")
    assert regard.load(tmp_path / "model").text_columns == ("premise", "hypothesis")
    table = tmp_path / "pairs.csv"
    table.write_text("note,hypothesis,premise\nso very long a note,a film,the day\n", encoding="utf-8")
    (found,) = regard.load(tmp_path / "model").predict(table).predictions
    assert (found["text_a"], found["text_b"]) == ("the day", "a film")
    for one_text in ("only one", ["only one"], [("a", "b", "c")]):
        with pytest.raises(InputError, match=r"two texts|pair"):
            regard.predict(tmp_path / "model", one_text)
    lines = tmp_path / "lines.txt"
    lines.write_text("one text per line\nand another\n", encoding="utf-8")
    with pytest.raises(InputError):
        regard.predict(tmp_path / "model", lines)


def test_skipped_rows_are_told_in_the_note_and_the_result(tmp_path: Path) -> None:
    source = tmp_path / "new.csv"
    source.write_text("id,text\n1,free cash prize\n2,see you\n3,\n4,ok\n")
    for options in ({}, {"output": tmp_path / "out.csv"}):
        events: list[Event] = []
        result = regard.predict(
            "regard-spam", source, columns=["text"], missing="skip", on_event=events.append, **options
        )
        notes = [event.message for event in events if isinstance(event, Note)]
        assert notes.count(f"1 row without a text was skipped: {source} line 4") == 1
        document = result.to_dict()
        assert (document["rows"], document["skipped"], document["blank"]) == (3, 1, 0)
    kept = regard.predict("regard-spam", source, columns=["text"])
    assert (kept.rows, kept.skipped, kept.blank) == (4, 0, 1)
