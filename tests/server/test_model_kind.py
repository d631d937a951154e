"""What a model is good for, by its folder or by what was loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from torch import nn

from regard.models import Gpt, GptConfig
from regard.server.model_kind import infer_kind
from regard.server.model_registry import ModelRegistry


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config.json": {"model_type": "bert"}}, "reader"),
        ({"config.json": {"model_type": "gpt2"}}, "writer"),
        ({"config.json": {"model_type": "t5"}}, "writer"),
        ({"config.json": {"model_type": "bert"}, "task.json": {}}, "tuned"),
        ({"config.json": {"model_type": "marian"}, "translate.json": {}}, "translator"),
        ({"config.json": []}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_folder_tells(tmp_path: Path, files: dict[str, object], kind: str) -> None:
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    assert infer_kind(str(tmp_path)) == kind


def test_what_is_built_in() -> None:
    assert [infer_kind(name) for name in ("regard-bert", "regard-de-en", "regard-gpt")] == [
        "reader",
        "translator",
        "writer",
    ]


def test_what_has_no_folder_tells_once_it_is_loaded() -> None:
    assert infer_kind("somebody/gpt") == "unknown"
    small = GptConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    assert infer_kind("somebody/gpt", (Gpt(small), None)) == "writer"
    assert infer_kind("somebody/bert", (nn.Identity(), None)) == "reader"


def test_a_vanished_folder_stays_what_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    registry = ModelRegistry([str(folder)])
    shutil.rmtree(folder)
    registry.start().join()
    assert [(one["kind"], one["state"]) for one in registry.states()] == [("tuned", "failed")]
