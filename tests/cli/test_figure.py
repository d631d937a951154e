"""`regard figure`: the table, the JSON document, drawings, the page and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from regard.cli.app import run
from regard.inference.load_model import load_model
from regard.interpret.figure.figure import figure_of
from regard.interpret.figure.figure_model import default_figure_model
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.interpret.classifiers import deciding

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
TEXT = "the film was _"


@pytest.fixture
def call(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    # Measuring five sentences in each of six runs would take longer than all of these tests.
    monkeypatch.setattr("regard.interpret.figure.ablation.ENGLISH", ("the day was good",))

    def regard_figure(*arguments: str) -> int:
        return run(["figure", *arguments, "--model", str(tiny_bert_folder)])

    return regard_figure


def test_the_table(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call(TEXT) == 0
    out, error = capsys.readouterr()
    assert error == ""
    found = figure_of(load_model(tiny_bert_folder), TEXT)
    whole, alone = found.ablation.outcomes[0].loss, found.ablation.find(["residual"]).loss
    assert whole is not None and alone is not None
    assert "encoder: [CLS] the film was [MASK] [SEP]" in out
    assert "Multi-Head Attention" in out and "weights (4, 6, 6)" in out
    assert f"no residual: loss {alone:.3f} ({alone - whole:+.3f})" in out
    assert "no mask: an encoder has no causal mask" in out


def test_the_json_document(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call(TEXT, "--json", "--layer", "-1", "--without", "scaling,positions") == 0
    document = json.loads(capsys.readouterr().out)
    found = figure_of(load_model(tiny_bert_folder), TEXT, without=["positions", "scaling"])
    assert document["without"] == ["positions", "scaling"] and document["layer"] == 2
    assert [box["name"] for box in document["boxes"]] == [box.name for box in found.model_boxes]
    last = document["ablation"]["outcomes"][-1]
    assert last["without"] == ["positions", "scaling"]
    assert last["loss"] == pytest.approx(found.ablation.find(["positions", "scaling"]).loss)
    assert [one["disabled"] is None for one in document["components"]] == [False, True, True, True]


def test_drawings_and_a_page(call: Call, tmp_path: Path, capsys: Captured, page_built: None) -> None:
    for name in ("a.svg", "a.png", "a.html"):
        assert call("the <b> film was the film of the day", "--layer", "1", "--output", str(tmp_path / name)) == 0
        assert capsys.readouterr() == (f"{tmp_path / name}\n", "")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg") and "Feed Forward" in svg and "&lt;b&gt;" in svg and "no residual" in svg
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 600 and len(image.convert("RGB").getcolors(100_000) or []) > 8
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert '"view":"figure"' in page and "#figure?layer=1" in page and "the \\u003cb>" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "--json"], "the text is empty"),
        ([TEXT, "--without", "mask"], "cannot remove 'mask'"),
        ([TEXT, "--target", "ein Film"], "leave the target out"),
        ([TEXT, "--layer", "7"], "no layer 7: this model has layers 1 to 2"),
    ],
)
def test_invalid_input(call: Call, capsys: Captured, arguments: list[str], message: str) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and message in error


def test_a_fine_tuned_model_without_a_masked_lm_head(tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), tmp_path / "tuned")
    assert run(["figure", TEXT, "--model", str(tmp_path / "tuned")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "masked-word head" in error and "tuned for a task" in error and "sentence-transformers" not in error


def test_a_built_in_post_norm_translator_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = {"lstm": "{}", "pre": '{"norm_first": true}', "post": '{"norm_first": false}'}
    names: list[str] = []
    monkeypatch.setattr("regard.interpret.figure.figure_model.builtin_names", lambda: names)
    monkeypatch.setattr("regard.interpret.figure.figure_model.builtin_folder", lambda name: tmp_path / name)
    for (name, config), expected in zip(configs.items(), ("regard-bert", "pre", "post"), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
        (tmp_path / name / "translate.json").write_text("{}")
        names.append(name)
        assert default_figure_model() == expected
