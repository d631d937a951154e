"""The manifest of a job: which changes it detects and how it describes them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.bulk.shards import Manifest, differences, fingerprint, manifest


def record(folder: Path, **changes: object) -> Manifest:
    settings: dict[str, object] = {"layers": "-1", "pooling": "mean", "max_length": None} | changes
    model = LoadedModel("tiny", *regard.load(folder), folder=folder)
    return manifest(digest="abc", model=model, continuable=True, settings=settings)


def test_the_same_job_has_no_differences(tiny_bert_folder: Path) -> None:
    assert differences(record(tiny_bert_folder), record(tiny_bert_folder)) == []


def test_a_model_that_was_passed_in_is_identified_by_its_weights(tiny_bert_folder: Path) -> None:
    loaded = LoadedModel("tiny", *regard.load(tiny_bert_folder), folder=tiny_bert_folder, changeable=True)

    def record_of_weights() -> Manifest:
        return manifest(digest="abc", model=loaded, continuable=True, settings={})

    before = record_of_weights()
    assert record_of_weights() == before
    with torch.no_grad():
        next(loaded.model.parameters()).add_(1)
    assert differences(before, record_of_weights()) == ["the model's files changed"]


def test_differences_are_described_with_both_values(tiny_bert_folder: Path) -> None:
    old, new = record(tiny_bert_folder), record(tiny_bert_folder, layers="-2", max_length=64)
    assert differences(old, new) == ["layers was '-1' and is '-2'", "max_length was None and is 64"]
    assert differences({**old, "input": "x", "model": "y"}, old) == ["the input changed", "the model's files changed"]
    assert differences({**old, "format": 0}, old) == ["Regard's version changed"]
    assert differences({**old, "settings": 3}, old) == ["the record is damaged"]


@pytest.fixture
def copy(tiny_bert_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_bert_folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_copied_model_has_the_same_fingerprint_whatever_its_readme(copy: Path, tiny_bert_folder: Path) -> None:
    (copy / "README.md").write_text("words", encoding="utf-8")
    os.utime(copy / "model.safetensors", (1, 1))
    assert fingerprint(copy) == fingerprint(tiny_bert_folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_changed_model_is_detected(name: str, copy: Path, tiny_bert_folder: Path) -> None:
    path = copy / name
    path.parent.mkdir(exist_ok=True)
    content = path.read_bytes() if path.exists() else b"old"
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert fingerprint(copy) != fingerprint(tiny_bert_folder)


def test_every_byte_of_a_large_file_counts(copy: Path) -> None:
    """Weights of 48 MB that differ in one bit at any offset."""
    path = copy / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(48_000_000)
    before = fingerprint(copy)
    for offset in (20_123_457, 31_000_001, 47_999_999):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"\x01")
        assert fingerprint(copy) != before, offset
        before = fingerprint(copy)
