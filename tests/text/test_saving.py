"""Saved folders are byte-for-byte reproducible, and transformers gives the same ids for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from regard.errors import RegardError
from regard.text import Tokenizer


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_saved_folder_is_stable_and_transformers_loads_it(
    both: Any, edge_case_texts: list[str], sentences: list[str], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    both.ours.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": type(both.theirs).__name__[:-9].lower()}))
    first = contents(tmp_path)
    again = Tokenizer.open(tmp_path)
    again.save(tmp_path)
    assert contents(tmp_path) == first
    assert ("vocab.txt" in first) == ("WordPiece" in repr(both.ours))
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    assert ("token_type_ids" in loaded("a")) == ("token_type_ids" in both.theirs("a"))
    for text in edge_case_texts + sentences[:20]:
        assert again.encode(text) == both.ours.encode(text)
        assert replace(both, theirs=loaded).agree(again.encode(text), text)
    for name in ("pad_token_id", "mask_token_id", "cls_token_id", "eos_token_id"):
        assert getattr(again, name) == getattr(both.ours, name) == getattr(loaded, name)


def test_vocab_txt_is_saved_unchanged(bert: Any, tmp_path: Path) -> None:
    bert.ours.save(tmp_path)
    assert contents(tmp_path) == bert.ours.files()
    assert (tmp_path / "vocab.txt").read_bytes() == (bert.folder / "vocab.txt").read_bytes()


def test_unigram_tokenizer_like_t5(unigram: tokenizers.Tokenizer, edge_case_texts: list[str], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    unigram.enable_padding(length=64)
    unigram.enable_truncation(1)
    unigram.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    settings = {"tokenizer_class": "T5Tokenizer", "model_max_length": 512}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer.open(tmp_path)
    assert (
        tokenizer.pad_token_id,
        tokenizer.eos_token_id,
        tokenizer.unk_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
    ) == (0, 1, 2, None, None)
    assert tokenizer.max_length == 512
    encoding = tokenizer.encode("hello world <extra_id_0>!")
    assert encoding.tokens[:3] == ["▁hello", "▁wor", "ld"] and encoding.ids[-1] == 1
    assert ["hello world"[start:end] for start, end in encoding.offsets[:3]] == ["hello", " wor", "ld"]
    saved = tmp_path / "saved"
    tokenizer.save(saved)
    (saved / "config.json").write_text(json.dumps({"model_type": "t5"}))
    first = contents(saved)
    Tokenizer.open(saved).save(saved)
    assert contents(saved) == first
    loaded = AutoTokenizer.from_pretrained(str(saved))
    for text in edge_case_texts:
        assert tokenizer.encode(text).ids == loaded(text)["input_ids"]
    assert loaded.model_max_length == 512 and list(loaded("a")) == ["input_ids", "attention_mask"]


def test_saving_replaces_an_earlier_tokenizer(small: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "hello"}')
    (tmp_path / "notes.txt").write_text("mine")
    small.save(tmp_path)
    assert Tokenizer.open(tmp_path).mask_token_id == 4
    assert sorted(contents(tmp_path)) == ["notes.txt", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def test_saving_over_a_file_is_rejected(small: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RegardError, match="file"):
        small.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
