"""Translator folders: saving and loading, and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import load_translator, save_translator
from tests.inference.translation.conftest import sentences


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_saved_translators_load(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    first = load_translator(folders[kind])
    save_translator(first, tmp_path / "again", files={"note.txt": b"hello"})
    again = load_translator(tmp_path / "again")
    assert again.alignment_heads == first.alignment_heads and (tmp_path / "again" / "note.txt").read_bytes() == b"hello"
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)
    assert again.subwords.files() == first.subwords.files()
    assert again.translate(["the dog"]) == first.translate(["the dog"])
    assert not again.model.training


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_a_built_in_translator_in_half_precision(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    first = load_translator(folders[kind])
    first.model.half().float()
    expected = first.translate(["the dog sees a cat"], beam=Beam())
    first.model.half()
    save_translator(first, tmp_path / "regard-xx-yy")
    monkeypatch.setattr("regard.checkpoints.loading.builtin_names", lambda: ["regard-xx-yy"])
    monkeypatch.setattr("regard.checkpoints.loading.builtin_folder", lambda name: tmp_path / name)
    again = load_translator("regard-xx-yy")
    assert {tensor.dtype for tensor in again.model.parameters()} == {torch.float32}
    assert again.translate(["the dog sees a cat"], beam=Beam()) == expected
    small, large = (folder / "model.safetensors" for folder in (tmp_path / "regard-xx-yy", folders[kind]))
    assert small.stat().st_size < 0.6 * large.stat().st_size


def test_other_models_are_refused(tiny_bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no translate\.json; expected .*`regard train translate`"):
        load_translator(tiny_bert_folder)
    with pytest.raises(InputError, match="no such folder"):
        load_translator(tmp_path / "none")


def test_damaged_folders(folders: dict[str, Path], tmp_path: Path) -> None:
    save_translator(load_translator(folders["transformer"]), tmp_path / "one")
    path = tmp_path / "one" / "translate.json"
    document = json.loads(path.read_text())
    for damage in ({"layer": "1", "heads": [0]}, {"layer": 0, "heads": []}, {"layer": True, "heads": [0]}, [1]):
        path.write_text(json.dumps({**document, "alignment": damage}))
        with pytest.raises(InputError, match="copy the folder again"):
            load_translator(tmp_path / "one")


def test_a_tokenizer_of_another_model(folders: dict[str, Path], tmp_path: Path) -> None:
    other = train_subwords(sentences(40), size=290, joint=True)
    save_translator(replace(load_translator(folders["transformer"]), subwords=other), tmp_path / "one")
    with pytest.raises(InputError, match="the model has 300 source tokens and the tokenizer 290"):
        load_translator(tmp_path / "one")
