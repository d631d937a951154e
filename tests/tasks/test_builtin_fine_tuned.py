"""A fine-tuned folder that is built in works by its name everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard import known
from regard.cli.app import run
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding
from tests.server.local import local_registry

NAME = "regard-spam"  # a tiny model in its place


@pytest.fixture
def builtin(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), tmp_path / NAME)
    monkeypatch.setattr(known, "_roots", lambda: [tmp_path])


def test_by_name_everywhere(builtin: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert NAME in known.builtin_names()
    model = regard.load(NAME)
    assert isinstance(model, FineTunedModel)
    found = regard.predict(NAME, ["it is a good day"]).predictions[0]
    assert found["label"] in model.labels
    assert run(["predict", NAME, "it is a good day"]) == 0
    assert found["label"] in capsys.readouterr().out
    rows = ["it is a good day\tpositive", "a bad film\tnegative"]
    assert regard.evaluate(NAME, data=rows).n == 2
    assert regard.faithfulness(NAME, "it is a good day for them").model.name == NAME
    registry = local_registry([NAME])
    capabilities = registry.capabilities(NAME)
    assert capabilities is not None and "fine-tuned" in capabilities
