"""Settings of sentence-transformers folders, in the formats of old and new versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from regard.inference.embedding.sentence_transformers import SentenceSettings, read_sentence_settings, unused_prompts


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
    ],
)
def test_pooling(document: object, expected: str, tmp_path: Path) -> None:
    assert read_sentence_settings(folder_with(tmp_path, pooling=document)).pooling == expected


@pytest.mark.parametrize(
    ("document", "requested"),
    [
        ({"pooling_mode_lasttoken": True}, "pooling_mode_lasttoken"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["cls", "max"]}, "cls and max"),
        ({"pooling_mode": 3}, "3"),
        ({"pooling_mode": []}, "no pooling"),
        ({}, "no pooling"),
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
    with pytest.raises(InputError, match=r"bert_config.json: max_seq_length is .*number of tokens"):
        read_sentence_settings(folder_with(tmp_path, length={"max_seq_length": value}))


@pytest.mark.parametrize(
    ("sentences", "pooling", "named"),
    [
        ({"truncate_dim": 16}, {"pooling_mode": "mean"}, "truncate_dim is 16"),
        (
            {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"},
            {"pooling_mode": "mean"},
            "default_prompt_name is 'query', which puts 'query: ' before every text",
        ),
        (
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            {"pooling_mode": "mean", "include_prompt": False},
            "include_prompt is false",
        ),
        ({"prompts": {}, "default_prompt_name": "query"}, {"pooling_mode": "mean"}, "which its prompts do not have"),
    ],
)
def test_settings_that_would_change_the_vectors_are_refused_by_name(
    sentences: dict[str, object], pooling: object, named: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path, pooling=pooling, sentences=sentences)
    with pytest.raises(InputError, match=rf"sentence_transformers.json: .*{named}.*choose a pooling"):
        read_sentence_settings(folder)
    assert read_sentence_settings(folder, pooling=False) == SentenceSettings(None, None)


@pytest.mark.parametrize(
    "sentences",
    [
        {"prompts": {}, "default_prompt_name": None, "truncate_dim": None, "similarity_fn_name": "cosine"},
        {"prompts": {"query": "", "document": ""}, "default_prompt_name": None},
        {"prompts": {"query": "", "document": ""}, "default_prompt_name": "query"},
        {"prompts": {"query": "Represent this sentence: "}, "default_prompt_name": None},
        {"__version__": {"sentence_transformers": "2.0.0"}},
    ],
)
def test_settings_that_change_no_vector_are_accepted(sentences: dict[str, object], tmp_path: Path) -> None:
    folder = folder_with(tmp_path, pooling={"pooling_mode": "mean", "include_prompt": False}, sentences=sentences)
    assert read_sentence_settings(folder) == SentenceSettings("mean", None)


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"query": "query: ", "passage": "passage: "}, ["query: ", "passage: "]),
        ({"query": "query: ", "document": ""}, ["query: "]),
        ({"clustering": "task: "}, []),
        (None, []),
    ],
)
def test_an_index_says_which_prompts_it_does_not_use(
    prompts: dict[str, str] | None, expected: list[str], tiny_bert_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_bert_folder, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    assert unused_prompts(folder) == expected
    notes: list[str] = []
    regard.index(["a film"], model=folder, on_event=lambda event: notes.append(event.line() or ""))
    assert any(f"({' and '.join(map(repr, expected))}) are not used" in note for note in notes) is bool(expected)
