"""What a model suits: capabilities, sentence and shape, from its folder and when it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import write_model
from regard.inference.load_model import load_model
from regard.inference.model_summary import ModelSummary, summarize_folder, summarize_model
from regard.models import Gpt, GptConfig, Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig
from regard.tasks.image_classification import ImageTask
from regard.tasks.regression import Regression
from regard.tasks.text_classification import TextClassification


@pytest.mark.parametrize(
    ("files", "some"),
    [
        ({"config.json": {"model_type": "bert"}}, ["text-encoder", "masked-lm"]),
        ({"config.json": {"model_type": "gpt2"}}, ["causal-lm", "text-generation"]),
        ({"config.json": {"model_type": "t5"}}, ["text-generation"]),
        ({"config.json": {"model_type": "bert"}, "task.json": {}}, ["fine-tuned", "text-encoder"]),
        ({"config.json": {"model_type": "regard-transformer"}, "translate.json": {}}, ["translation"]),
        ({"config.json": {"model_type": "regard-transformer", "norm_first": False}}, ["translation", "post-norm"]),
        ({"config.json": {"model_type": "marian"}}, []),
        ({"config.json": []}, None),
        ({}, None),
    ],
)
def test_capabilities_of_a_folder(tmp_path: Path, files: dict[str, object], some: list[str] | None) -> None:
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    found = summarize_folder(str(tmp_path)).capabilities
    assert found is None if some is None else set(some) <= set(found or ())
    if "task.json" in files:
        assert not {"masked-lm", "fine-tuning"} & set(found or ())


def test_capabilities_of_built_in_models() -> None:
    expected = {"regard-bert": "masked-lm", "regard-de-en": "translation", "regard-gpt": "text-generation"}
    expected |= {"regard-embed": "sentence-embedding"}
    assert "masked-lm" not in (summarize_folder("regard-embed").capabilities or ())
    assert all(capability in (summarize_folder(name).capabilities or ()) for name, capability in expected.items())


def test_capabilities_of_a_loaded_model_without_a_folder() -> None:
    assert summarize_folder("somebody/gpt") == ModelSummary()
    small = GptConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    assert "text-generation" in (summarize_model(LoadedModel("a", Gpt(small), None)).capabilities or ())
    assert summarize_model(LoadedModel("a", nn.Identity(), None)).capabilities == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("regard-bert", "Fills in blanks and gives word vectors; English."),
        ("regard-embed", "Gives sentence vectors for search, clusters and maps; English."),
        ("regard-gpt", "Continues a text and gives the probability of each token; English."),
        ("regard-fr-en", "Translates from French into English."),
    ],
)
def test_the_sentence_of_a_built_in_model(name: str, sentence: str) -> None:
    assert summarize_folder(name).description == sentence


def test_the_folder_and_the_loaded_model_say_the_same() -> None:
    before, after = summarize_folder("regard-de-en"), summarize_model(load_model("regard-de-en"))
    assert before == after
    assert (before.num_attention_heads, before.num_parameters) == (4, 7_578_624)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_position_of_layer_norm(tmp_path: Path, norm_first: bool) -> None:
    config = TransformerConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        norm_first=norm_first,
    )  # fmt: skip
    write_model(Transformer(config), tmp_path, files={})
    found = summarize_folder(str(tmp_path))
    assert ("post-norm" in (found.capabilities or ())) == (not norm_first) and found.num_attention_heads == 2
    assert "ranslates" in found.description and "two languages" in found.description


@pytest.mark.parametrize(("score", "heads"), [("general", 1), ("additive", 1), ("none", None)])
def test_a_recurrent_model_has_one_head_or_none(tmp_path: Path, score: Any, heads: int | None) -> None:
    write_model(
        Seq2Seq(Seq2SeqConfig(source_size=20, hidden_size=8, embedding_size=8, score=score)), tmp_path, files={}
    )
    found = summarize_folder(str(tmp_path))
    assert "recurrent" in (found.capabilities or ()) and found.num_attention_heads == heads


def test_the_sentence_of_a_task() -> None:
    assert TextClassification(("ham", "spam")).summary == "Classifies texts: ham, spam"
    assert ImageTask(tuple(map(str, range(12)))).summary == "Classifies images: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert Regression(0.0, 1.0).summary == "Predicts a number for a text or a pair of texts"
