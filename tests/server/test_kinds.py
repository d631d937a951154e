"""What a model is good for, by its folder or by what was loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from torch import nn

from regard.models import Gpt, GptConfig
from regard.server.kinds import kind_of
from regard.server.shelf import Shelf


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
    assert kind_of(str(tmp_path)) == kind


def test_what_is_built_in() -> None:
    assert [kind_of(name) for name in ("regard-bert", "regard-de-en", "regard-gpt")] == [
        "reader",
        "translator",
        "writer",
    ]


def test_what_has_no_folder_tells_once_it_is_loaded() -> None:
    assert kind_of("somebody/gpt") == "unknown"
    small = GptConfig(vocabulary=10, width=8, depth=1, heads=2, ffn=8, positions=8)
    assert kind_of("somebody/gpt", (Gpt(small), None)) == "writer"
    assert kind_of("somebody/bert", (nn.Identity(), None)) == "reader"


def test_a_vanished_folder_stays_what_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    shelf = Shelf([str(folder)])
    shutil.rmtree(folder)
    shelf.start().join()
    assert [(one["kind"], one["state"]) for one in shelf.states()] == [("tuned", "failed")]
