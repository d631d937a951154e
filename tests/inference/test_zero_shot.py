"""Zero-shot classification equals transformers' pipeline with an NLI model, and is the cosine of vectors without."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.cli.app import run
from regard.errors import InputError
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import PairClassification
from tests.parity.published import LONG, SENTENCES, publish

NLI = ["contradiction", "neutral", "entailment"]
LABELS = ["a film", "day", "日本 x"]
TEXTS = [*SENTENCES, LONG]
EMBED = "regard-embed"


def pipeline_scores(folder: Path, **options: object) -> list[dict[str, float]]:
    """What transformers gives for each text, by label."""
    pipeline = transformers.pipeline("zero-shot-classification", model=str(folder), device="cpu")
    with torch.no_grad():
        found = [pipeline(text, LABELS, **options) for text in TEXTS]
    return [dict(zip(one["labels"], one["scores"], strict=True)) for one in found]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "bart"])
@pytest.mark.parametrize("multi_label", [False, True])
def test_an_nli_model_scores_as_in_transformers(family: str, tmp_path: Path, multi_label: bool) -> None:
    publish(family, "SequenceClassification", tmp_path, labels=NLI)
    template = "it is {}."
    expected = pipeline_scores(tmp_path, hypothesis_template=template, multi_label=multi_label)
    found = regard.classify(TEXTS, LABELS, model=tmp_path, hypothesis_template=template, multi_label=multi_label)
    for one, scores in zip(found.predictions, expected, strict=True):
        assert one["probabilities"] == pytest.approx(scores, abs=1e-5)
        best = max(scores, key=scores.__getitem__)
        assert one["label"] == ([name for name in LABELS if scores[name] >= 0.5] if multi_label else best)
    assert found.method == "entailment" and found.truncated >= 1


@pytest.mark.parametrize("classes", [["ENTAILMENT", "neutral", "contradiction"], ["entailment", "not_entailment"]])
def test_entailment_is_found_by_its_name(tmp_path: Path, classes: list[str]) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=classes)
    short = {"hypothesis_template": "{}"}
    expected = pipeline_scores(tmp_path, multi_label=True, **short)
    found = regard.classify(TEXTS, LABELS, model=tmp_path, multi_label=True, **short)
    for one, scores in zip(found.predictions, expected, strict=True):
        assert one["probabilities"] == pytest.approx(scores, abs=1e-5)


def test_models_and_arguments_that_do_not_fit_are_refused(tmp_path: Path, tiny_bert_folder: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path / "classes", labels=["a", "b"])
    with pytest.raises(InputError, match="begins with 'entail'"):
        regard.classify(TEXTS, LABELS, model=tmp_path / "classes")
    publish("bert", "SequenceClassification", tmp_path / "score", labels=1)
    with pytest.raises(InputError, match="needs an NLI model"):
        regard.classify(TEXTS, LABELS, model=tmp_path / "score")
    publish("bert", "SequenceClassification", tmp_path / "odd", labels=["neutral", "contradiction", "entailment"])
    assert regard.classify(TEXTS, LABELS, model=tmp_path / "odd", hypothesis_template="{}").predictions
    with pytest.raises(InputError, match="takes 'neutral' for contradiction"):
        regard.classify(TEXTS, LABELS, model=tmp_path / "odd", multi_label=True)
    for options, error in [
        ({"labels": []}, "no labels"),
        ({"labels": ["a", "a"]}, "given twice"),
        ({"labels": ["a", " "]}, "blank"),
        ({"hypothesis_template": "no place"}, "no place for a label"),
        ({"hypothesis_template": "{name}"}, "is no format"),
        ({"multi_label": True}, "give an NLI model"),
        ({"none": 5.0}, "between 0 and 1"),
        ({"none": 0.1, "labels": ["none", "a"]}, "'none' is one of the labels"),
        ({"label_column": "topic"}, "no column 'topic'"),
    ]:
        with pytest.raises(InputError, match=error):
            regard.classify(TEXTS, **{"labels": LABELS, "model": tiny_bert_folder, **options})
    with pytest.raises(InputError, match="a label with its template is too long"):
        publish("bert", "SequenceClassification", tmp_path / "nli", labels=NLI)
        regard.classify(TEXTS, ["word " * 50], model=tmp_path / "nli")


def test_an_embedding_model_gives_cosines() -> None:
    texts = ["the parcel came late", "far too expensive", "the cloth tore at once", "x" * 5000]
    labels = ["delivery", "price", "quality"]
    found = regard.classify([*texts, None], labels)
    vectors = regard.embed([*texts, *labels], normalize=True).vectors
    expected = vectors[:4] @ vectors[4:].T
    rows = np.array([list(one["cosines"].values()) for one in found.predictions[:4]])
    assert found.method == "similarity" and rows == pytest.approx(expected, abs=1e-4)
    assert [one["label"] for one in found.predictions[:3]] == labels
    assert found.predictions[4]["label"] is None and found.blank == 1


def test_none_is_answered_where_no_label_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = {"delivery": "the parcel came {}", "price": "it costs {}"}
    ways = ["late", "too much", "early", "a lot", "on a Monday", "nothing", "in the rain", "twice", "at night", "less"]
    rows = [[pattern.format(way), label] for label, pattern in about.items() for way in ways]
    rows += [["my cat sleeps", "none"], ["the choir sings an aria", "none"]]
    table = tmp_path / "rows.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["review", "topic"], *rows])
    command = ["classify", str(table), "--columns", "review", "--labels", "delivery,price", "--none", "0.1"]
    assert run([*command, "--label-column", "topic", "--json"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    none, evaluation = document["none"], document["evaluation"]
    assert none["texts"] == 22 and 0 <= none["measured"] <= 0.5 and f"{none['threshold']:.3f}" in output.err
    assert evaluation["n"] == 22 and set(evaluation["intervals"]) >= {"accuracy", "macro_f1"}
    assert evaluation["calibration"] is None and all(one["confidence"] is None for one in evaluation["errors"])
    assert run([*command, "--output", str(tmp_path / "out.csv"), "--keep", "topic"]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    right = sum(row["label"] == row["topic"] for row in written)
    assert 100 * right / 22 == pytest.approx(evaluation["metrics"]["accuracy"])
    for row in written:
        scores = {name: float(row[f"cosine_{name}"]) for name in about}
        above = max(scores.values()) > none["threshold"]
        assert row["label"] == (max(scores, key=scores.__getitem__) if above else "none")
        assert (row["cosine"] == "") == (not above)
        assert float(row["fit"]) == max(scores.values())
    assert {row["label"] for row in written[-2:]} == {"none"}
    capsys.readouterr()
    assert run([*command, "--output", str(tmp_path / "out.csv"), "--keep", "topic"]) == 0
    assert "nothing was predicted" in capsys.readouterr().err
    other = [word.replace("delivery", "post") for word in command]
    assert run([*other, "--output", str(tmp_path / "out.csv"), "--keep", "topic"]) == 2  # another setting
    assert run([*command[:-2], "--label-column", "topic"]) == 2
    assert "'none' is none of the 2 labels" in capsys.readouterr().err


def test_none_with_a_model_of_pairs(tiny_bert_folder: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = PairClassification(NLI)
    model = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)
    found = regard.classify(SENTENCES * 3, LABELS, model=model, none=0.5)
    assert found.none is not None and found.none.labels == 3 and found.none.texts == 12
    assert all(one["label"] in (*LABELS, "none") for one in found.predictions)
    assert all((one["fit"] > found.none.threshold) == (one["label"] != "none") for one in found.predictions)
    names, rows = found.to_table()
    assert [row[names.index("fit")] for row in rows] == [one["fit"] for one in found.predictions]
    alone = regard.classify(SENTENCES * 3, LABELS, model=model, multi_label=True).predictions
    highest = [max(one["probabilities"].values()) for one in alone]
    assert [one["fit"] for one in found.predictions] == pytest.approx(highest, abs=1e-5)
    assert all(sum(one["probabilities"].values()) == pytest.approx(1.0) for one in found.predictions)
