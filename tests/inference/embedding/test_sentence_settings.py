"""Settings of sentence-transformers folders, in the formats of old and new versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.inference.embedding.sentence_transformers import SentenceSettings, read_sentence_settings


def folder_with(
    folder: Path, *, pooling: object = None, length: object = None, sentences: dict[str, object] | None = None
) -> Path:
    if sentences is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(sentences), encoding="utf-8")
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    if length is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(length), encoding="utf-8")
    return folder


def test_a_folder_without_settings(tmp_path: Path) -> None:
    assert read_sentence_settings(tmp_path) == SentenceSettings(None, None)


def test_the_real_files(minilm_folder: Path) -> None:
    assert read_sentence_settings(minilm_folder) == SentenceSettings("mean", 256, normalize=True)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 8}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": "max", "pooling_mode_cls_token": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls+mean"),
        ({"pooling_mode": ["mean", "cls"]}, "mean+cls"),
    ],
)
def test_pooling(document: object, expected: str, tmp_path: Path) -> None:
    assert read_sentence_settings(folder_with(tmp_path, pooling=document)).pooling == expected


@pytest.mark.parametrize(
    ("document", "requested"),
    [
        ({"pooling_mode_of_tomorrow": True}, "pooling_mode_of_tomorrow"),
        ({"pooling_mode": ["cls", "median"]}, "cls and median"),
        ({"pooling_mode": 3}, "3"),
        ({"pooling_mode": []}, "no pooling"),
        ({}, "no pooling"),
        ({"pooling_mode": "mean", "temperature": 2}, "temperature is 2"),
    ],
)
def test_an_unsupported_pooling_is_refused_unless_another_is_chosen(
    document: object, requested: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path, pooling=document)
    with pytest.raises(InputError, match=rf"1_Pooling/config.json: .*{requested}.*choose a pooling"):
        read_sentence_settings(folder)
    assert read_sentence_settings(folder, pooling=False) == SentenceSettings(None, None)


@pytest.mark.parametrize(("document", "expected"), [({"max_seq_length": 256}, 256), ({"do_lower_case": False}, None)])
def test_length(document: object, expected: int | None, tmp_path: Path) -> None:
    assert read_sentence_settings(folder_with(tmp_path, length=document)).max_length == expected


@pytest.mark.parametrize("value", [0, -1, 1.5, "256", True])
def test_an_invalid_length_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bert_config.json: max_seq_length is .*number"):
        read_sentence_settings(folder_with(tmp_path, length={"max_seq_length": value}))


PROMPTS = {"query": "query: ", "passage": "passage: "}


@pytest.mark.parametrize(
    ("sentences", "named"),
    [
        ({"truncate_dim": 0}, "truncate_dim is 0"),
        ({"truncate_dim": "16"}, "truncate_dim is '16'"),
        ({"prompts": {}, "default_prompt_name": "clustering"}, "default_prompt_name is 'clustering'"),
        ({"prompts": ["query: "]}, "prompts is"),
        ({"prompts": {"query": 3}}, "prompts is"),
        ({"similarity_fn_name": "jaccard"}, "similarity_fn_name is 'jaccard'"),
        ({"model_type": "SparseEncoder"}, "model_type is 'SparseEncoder'"),
        ({"max_active_dims": 5}, "max_active_dims is 5"),
    ],
)
def test_settings_that_are_not_supported_are_refused_by_name(
    sentences: dict[str, object], named: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path, pooling={"pooling_mode": "mean"}, sentences=sentences)
    with pytest.raises(InputError, match=rf"sentence_transformers.json: .*{named}"):
        read_sentence_settings(folder)
    if not named.startswith(("prompts", "default", "model_type")):  # a prompt is put before texts with every pooling
        assert read_sentence_settings(folder, pooling=False) == SentenceSettings()


@pytest.mark.parametrize(
    "sentences",
    [
        {"prompts": {}, "default_prompt_name": None, "truncate_dim": None, "similarity_fn_name": "cosine"},
        {"prompts": {"query": "", "document": ""}, "default_prompt_name": None},
        {"prompts": {"query": "", "document": ""}, "default_prompt_name": "query"},
        {"prompts": {"query": "Represent this sentence: "}, "default_prompt_name": None},
        {"prompts": {}, "default_prompt_name": "query"},  # a name that sentence-transformers always has
        {"__version__": {"sentence_transformers": "2.0.0"}},
    ],
)
def test_settings_that_put_nothing_before_texts(sentences: dict[str, object], tmp_path: Path) -> None:
    settings = read_sentence_settings(folder_with(tmp_path, pooling={"pooling_mode": "mean"}, sentences=sentences))
    assert settings.find_prompt() == "" and settings.digest == "" and settings.pooling == "mean"


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        (PROMPTS, "query: ", "passage: "),
        ({**PROMPTS, "document": ""}, "query: ", ""),
        ({"corpus": "c: ", "document": "d: "}, "", "d: "),
        ({"clustering": "task: "}, "", ""),  # never the default prompt
    ],
)
def test_the_prompts_of_a_search(prompts: dict[str, str], query: str, document: str, tmp_path: Path) -> None:
    sentences = {"prompts": prompts, "default_prompt_name": next(iter(prompts))}
    settings = read_sentence_settings(folder_with(tmp_path, sentences=sentences))
    assert (settings.find_prompt(task="query"), settings.find_prompt(task="document")) == (query, document)
    assert settings.find_prompt() == next(iter(prompts.values()))
    assert settings.find_prompt("") == ""
    with pytest.raises(InputError, match="no prompt 'quer'"):
        settings.find_prompt(prompt_name="quer")
    with pytest.raises(InputError, match="expected one of them"):
        settings.find_prompt("q: ", "query")


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        ({"modality_config": {"message": {"method": "forward"}}}, "modality_config is .*chat template"),
        ({"query_length": 32}, "query_length is 32"),
        ({"model_args": {"torch_dtype": "float16", "is_causal": False}}, "is_causal is False"),
        ({"tokenizer_args": {"add_eos_token": True}}, "add_eos_token is True"),
    ],
)
def test_how_texts_are_read_is_refused_by_name(texts: object, named: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, length=texts)
    with pytest.raises(InputError, match=rf"sentence_bert_config.json: .*{named}.*choose a pooling"):
        read_sentence_settings(folder)
    assert read_sentence_settings(folder, pooling=False) == SentenceSettings()


@pytest.mark.parametrize(
    ("types", "named"),
    [
        (["Transformer", "WeightedLayerPooling", "Pooling"], "WeightedLayerPooling"),
        (["Transformer", "Dense", "Pooling"], "Dense"),  # on the vectors of tokens
        (["Transformer", "Pooling", "CNN"], "CNN"),
        (["CLIPModel"], "CLIPModel"),
    ],
)
def test_modules_that_are_not_known_are_refused_by_name(types: list[str], named: str, tmp_path: Path) -> None:
    modules = [
        {"path": f"{i}_{kind}" * (i > 0), "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(types)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=rf"modules.json: unsupported modules: {named}(, Pooling)?;"):
        read_sentence_settings(tmp_path)
    modules[0]["type"] = "custom_st.Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"unsupported modules: custom_st\.Transformer"):
        read_sentence_settings(tmp_path)
