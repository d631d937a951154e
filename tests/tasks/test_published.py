"""Published models with task heads: what their config.json may say, what is refused by name, and what is saved."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import regard
from regard.errors import InputError, RegardError
from regard.tasks.fine_tuned_model import describe_compute, is_fine_tuned, load_fine_tuned
from regard.tasks.sequence_classification import SequenceScoring
from regard.tasks.task import config_labels
from tests.parity.published import LONG, SENTENCES, publish

Publish = Callable[..., Path]
LABELS = ["neg", "neu", "pos"]


@pytest.fixture
def published(tmp_path: Path) -> Publish:
    """Writes a model and applies a change to its config.json."""

    def make(family: str = "bert", head: str = "SequenceClassification", **options: Any) -> Path:
        change = options.pop("change", {})
        folder = tmp_path / family
        publish(family, head, folder, **{"labels": LABELS, **options})
        path = folder / "config.json"
        document = {**json.loads(path.read_text()), **change}
        path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        return folder

    return make


@pytest.mark.parametrize(
    ("document", "labels"),
    [
        ({}, ["LABEL_0", "LABEL_1"]),
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"id2label": {"1": "b", "0": "a"}}, ["a", "b"]),
        ({"id2label": {str(n): f"x{n}" for n in range(11)}}, [f"x{n}" for n in range(11)]),
        ({"id2label": {"0": 0, "1": 1}, "num_labels": 2}, ["0", "1"]),
    ],
)
def test_labels_are_those_of_the_config(document: dict[str, Any], labels: list[str]) -> None:
    assert config_labels(document) == labels


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "none for 1"),
        ({"id2label": {"0": "a", "1": "a"}}, "the label 'a' twice"),
        ({"id2label": {"one": "a"}}, "none for 0"),
        ({"id2label": []}, "id2label is"),
        ({"id2label": {"0": "a"}, "num_labels": 2}, "num_labels is 2"),
        ({"num_labels": 0}, "num_labels is '0'"),
        ({"num_labels": "3"}, "num_labels is '3'"),
    ],
)
def test_labels_that_cannot_be_right_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config_labels(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem_type": "regression"}, "problem_type is regression with 3 outputs"),
        ({"problem_type": "ranking"}, "problem_type"),
        ({"id2label": {"0": "a", "1": "b"}}, r"classifier.weight has shape \(3, 24\), expected \(2, 24\)"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "config.json: id2label"),
        ({"architectures": ["RobertaForSequenceClassification"]}, "begin with Bert"),
        ({"architectures": ["BertForMultipleChoice"]}, r"classifier.weight has shape \(3, 24\)"),
        ({"architectures": ["BertForQuestionAnswering"]}, "lack qa_outputs.weight"),
        ({"architectures": ["BertForImageClassification"]}, "no such head of a BERT"),
        ({"architectures": ["BertForMaskedLM"]}, "names no class for a task"),
        ({"architectures": None}, "names no class for a task"),
    ],
)
def test_a_config_that_the_weights_contradict(published: Publish, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_fine_tuned(published(change=change))


def test_tensors_that_nothing_reads_are_named(published: Publish, tmp_path: Path) -> None:
    path = published() / "model.safetensors"
    save_file({**load_file(path), "classifier.extra.weight": torch.ones(2)}, path)
    with pytest.warns(UserWarning, match=r"not used: classifier\.extra\.weight$"):
        load_fine_tuned(path.parent)
    config = path.parent / "config.json"
    document = json.loads(config.read_text())
    config.write_text(json.dumps({**document, "num_hidden_layers": document["num_hidden_layers"] - 1}))
    with pytest.warns(UserWarning, match=r"bert\.encoder\.layer\.\d\."):
        load_fine_tuned(path.parent)


def test_a_pooler_beside_a_head_that_reads_tokens_is_harmless(tmp_path: Path) -> None:
    publish("bert", "TokenClassification", tmp_path, labels=["A", "B"])
    path = tmp_path / "model.safetensors"
    extra = {"bert.pooler.dense.weight": torch.zeros(24, 24), "bert.pooler.dense.bias": torch.zeros(24)}
    save_file({**load_file(path), **extra}, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_fine_tuned(tmp_path)


def test_a_missing_tensor_does_not_blame_the_head(published: Publish) -> None:
    path = published() / "model.safetensors"
    tensors = load_file(path)
    del tensors["bert.encoder.layer.0.output.dense.weight"]
    save_file({**tensors, "odd.weight": torch.ones(1)}, path)
    with pytest.raises(InputError, match=r"dense\.weight is missing; odd\.weight is not expected$"):
        load_fine_tuned(path.parent)


def test_keys_of_the_head_are_refused_by_name(published: Publish, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"classifier_pooling is 'max'; .* supports only cls, mean"):
        load_fine_tuned(published("modernbert", change={"classifier_pooling": "max"}))
    path = tmp_path / "modernbert" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "classifier_bias": True}))
    with pytest.raises(InputError, match="classifier_bias is True"):
        load_fine_tuned(path.parent)
    with pytest.raises(InputError, match="pooler_hidden_act is 'tanh'"):
        load_fine_tuned(published("deberta-v2", change={"pooler_hidden_act": "tanh"}))
    with pytest.raises(InputError, match="summary_type is 'mean'"):
        load_fine_tuned(published("electra", change={"summary_type": "mean"}))
    with pytest.raises(InputError, match="truncation_side should be left or right"):
        folder = published()
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "truncation_side": "middle"}))
        load_fine_tuned(folder)


def test_families_without_the_head_are_refused(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    transformers.T5ForTokenClassification(config).save_pretrained(tmp_path)
    assert is_fine_tuned(tmp_path)
    with pytest.raises(InputError, match="no such head of a T5"):
        load_fine_tuned(tmp_path)


def test_missing_and_damaged_weights(published: Publish) -> None:
    folder = published()
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file({name: tensor for name, tensor in weights.items() if name != "classifier.bias"}, path)
    with pytest.raises(InputError, match=r"lack classifier\.bias"):
        load_fine_tuned(folder)
    weights["classifier.bias"][1] = float("nan")
    save_file(weights, path)
    with pytest.raises(RegardError, match="not finite"):
        load_fine_tuned(folder).predict("the film")


@pytest.mark.parametrize("options", [{}, {"problem_type": "multi_label_classification"}, {"labels": 1}])
def test_a_saved_model_loads_the_same(published: Publish, options: dict[str, Any], tmp_path: Path) -> None:
    model = regard.load(published(**options))
    model.save(tmp_path / "again")
    assert not (tmp_path / "again" / "task.json").exists()
    again = regard.load(tmp_path / "again")
    found = model.predict([*SENTENCES, LONG]).predictions
    assert again.predict([*SENTENCES, LONG]).predictions == found
    assert again.task.to_dict() == model.task.to_dict()
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    logits = theirs(**tokenizer(SENTENCES[0], return_tensors="pt")).logits[0]
    ours = list(found[0].get("probabilities", {"": found[0].get("score")}).values())
    assert ours == pytest.approx(model.task.scores(logits).tolist(), abs=1e-5)


def test_one_output_is_a_score_and_a_logit(published: Publish) -> None:
    model = regard.load(published(labels=1))
    (found,) = model.predict("the film", "a bad day").predictions
    assert found["score"] == pytest.approx(1 / (1 + np.exp(-found["logit"])))
    assert list(model.task.prediction_columns) == ["score", "logit"]
    assert isinstance(model.task, SequenceScoring)
    plain = model.task.with_activation("identity")
    assert plain.scores(torch.tensor([found["logit"]])).item() == pytest.approx(found["logit"])
    with pytest.raises(InputError, match="activation"):
        model.task.with_activation("gelu")


def test_regression_has_no_activation(published: Publish) -> None:
    (found,) = regard.load(published(labels=1, problem_type="regression")).predict("the film").predictions
    assert found["score"] == found["logit"]


def test_texts_are_cut_on_the_side_of_the_tokenizer(published: Publish) -> None:
    folder = published()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncation_side": "left"}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = regard.load(folder)
    for pair in ((LONG, None), (LONG, "a day"), ("the", LONG), (LONG, LONG)):
        (row,) = model.input_builder.sequences([pair])
        assert row.ids == tokenizer(*pair, truncation=True)["input_ids"]
        assert row.num_truncated > 0
    model.save(folder / "again")
    assert regard.load(folder / "again").tokenizer.truncation_side == "left"


def test_a_decoder_predicts_from_the_last_token_that_is_not_padding(published: Publish) -> None:
    folder = published("llama")
    model = regard.load(folder)
    rows = model.input_builder.sequences([("day", None), ("day<pad><pad>", None), ("", None), ("day", "film")])
    assert [row.positions for row in rows] == [[3], [3], [0], [8]]
    assert [len(row) for row in rows] == [4, 6, 1, 9]


def test_an_empty_text_that_gives_no_token(published: Publish) -> None:
    model = regard.load(published("gpt2"))
    with pytest.raises(InputError, match="no token for an empty text"):
        model.input_builder.sequences([("", None)])


def test_evaluation_reads_texts_and_pairs(published: Publish, tmp_path: Path) -> None:
    model = regard.load(published())
    rows = [("text,label", "the film,pos", "a day,neg"), ("premise,hypothesis,label", "the film,is long,pos")]
    for number, lines in enumerate(rows):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(lines))
        assert model.evaluate(path).n == len(lines) - 1
    with pytest.raises(InputError, match=r"the label 'bad' is not among .* config.json .* 'neg', 'neu', 'pos'"):
        model.evaluate([{"text": "the film", "label": "bad"}])


def test_tags_of_every_scheme_are_evaluated(tmp_path: Path) -> None:
    publish("bert", "TokenClassification", tmp_path / "bioes", labels=["O", "B-X", "I-X", "E-X", "S-X"])
    model = regard.load(tmp_path / "bioes")
    path = tmp_path / "data.conll"
    path.write_text("the B-X\nfilm E-X\nis O\n\nday S-X\n" + "word O\n" * 200)
    assert model.evaluate(path).n == 2  # in windows: longer than the model reads
    path.write_text("the B-Y\n")
    with pytest.raises(InputError, match="its types are X"):
        model.evaluate(path)
    with pytest.raises(InputError, match="aggregation"):
        model.with_aggregation("mean")


def test_long_texts_are_tagged_to_their_end(tmp_path: Path) -> None:
    publish("bert", "TokenClassification", tmp_path, labels=["A", "B"])
    model = regard.load(tmp_path).with_aggregation("none")
    entities = model.predict(LONG).predictions[0]["entities"]
    assert entities[-1]["end"] == len(LONG.rstrip())
    assert model.predict(["", "a"]).predictions[0]["entities"] is None


def test_predict_takes_an_aggregation(tmp_path: Path) -> None:
    publish("bert", "TokenClassification", tmp_path)
    model, texts = regard.load(tmp_path), ["the day was good"]
    expected = regard.predict(tmp_path, texts, aggregation="none").predictions
    assert model.predict(texts, aggregation="none").predictions == expected
    assert model.predict(texts).predictions == regard.predict(tmp_path, texts).predictions != expected


def test_no_training_is_named_that_was_not_ours(published: Publish) -> None:
    model = load_fine_tuned(published())
    assert describe_compute(model, model.device) == "computing on cpu in float32"
    assert "in training" in describe_compute(replace(model, trained=True, precision="bf16"), model.device)


def test_other_tasks_have_no_aggregation(published: Publish) -> None:
    with pytest.raises(InputError, match="aggregation"):
        regard.load(published()).with_aggregation("simple")
