"""`regard predict`: one JSON line per prediction, and a page with the same predictions that opens offline."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli.app import run, verb_commands
from regard.render.bundle import is_built
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture
def call(one_thread: None, tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `regard predict` in a folder with the fine-tuned model `model`."""
    monkeypatch.chdir(tmp_path)
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(["bad", "good"])
    torch.manual_seed(0)
    with_head = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, with_head, tokenizer, 32), tmp_path / "model")
    return lambda *arguments: run(["predict", *map(str, arguments), "--device", "cpu"], registers=verb_commands())


def page_data(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="regard">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    payload: dict[str, Any] = json.loads(found[1])
    return payload


def test_the_page_contains_the_printed_predictions(
    call: Call, tmp_path: Path, capsys: Captured, page_built: None
) -> None:
    lines = [f"the film is <b>so</b> long, number {number}\n" for number in range(53)]
    (tmp_path / "texts.txt").write_text("".join(lines), encoding="utf-8")
    assert call("model", "texts.txt", "--page", "page.html") == 0
    printed = capsys.readouterr()
    predictions = [json.loads(line) for line in printed.out.splitlines()]
    assert len(predictions) == 53
    payload = page_data(tmp_path / "page.html")
    assert [one["prediction"] for one in payload["predictions"]] == predictions[:50]
    assert payload["notes"] == ["The first 50 of 53 examples are shown."]
    assert payload["model"]["task"] == "classify"
    assert payload["cli"] == "regard predict --page page.html model texts.txt"
    assert all(one["evidence"] for one in payload["predictions"])
    assert "page.html: 50 of 53 examples" in printed.err
    assert "</b>" not in (tmp_path / "page.html").read_text("utf-8").split('id="regard"')[1].split("</script>")[0]


def test_the_page_of_piped_lines(
    call: Call, tmp_path: Path, capsys: Captured, page_built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "good film"}\nbad\n')))
    assert call("model", "-", "--page", "page.html") == 0
    predictions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    payload = page_data(tmp_path / "page.html")
    assert [one["prediction"] for one in payload["predictions"]] == predictions
    assert [one["texts"] for one in payload["predictions"]] == [["good film"], ["bad"]]
    assert payload["notes"] == []


def test_invalid_output_is_rejected_before_any_work(call: Call, tmp_path: Path, capsys: Captured) -> None:
    assert call("model", "the film", "--page", "page.pdf") == 2
    assert "expected a name that ends in .html" in capsys.readouterr().err
    if is_built():
        assert call("model", "the film", "--page", "nowhere/page.html") == 2
        printed = capsys.readouterr()
        assert "there is no folder" in printed.err
        assert printed.out == ""


def test_the_error_for_a_missing_build_names_the_command(
    call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.render import bundle

    monkeypatch.setattr(bundle, "is_built", lambda static=None: False)
    assert call("model", "the film", "--page", "page.html") != 0
    printed = capsys.readouterr()
    assert "python web/build.py" in printed.err
    assert printed.out == ""


def test_without_a_page_no_evidence_is_computed(call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.interpret.attribution.predictions.gather_evidence", pytest.fail)
    assert call("model", "the film is long") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "the film is long"
