"""`regard heads`: the table, the JSON document, the page and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("the film was good and the film was long\nthe film was bad\nwe love the water\nyou had a hot day\n")
    return path


@pytest.fixture
def call(tiny_bert_folder: Path) -> Callable[..., int]:
    def regard_heads(*arguments: str) -> int:
        return run(["heads", *arguments, "--model", str(tiny_bert_folder)])

    return regard_heads


def test_the_json_document(call: Callable[..., int], texts: Path, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("--text", str(texts), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == regard.heads(text=texts, model=str(tiny_bert_folder)).to_dict()
    assert (document["read"], document["layers"], document["heads_each"], len(document["heads"])) == (2, 2, 4, 8)
    assert sum(document["counts"].values()) + sum(head["pattern"] is None for head in document["heads"]) == 8


def test_the_table(call: Callable[..., int], texts: Path, capsys: Captured) -> None:
    assert call("--text", str(texts), "--limit", "1") == 0
    out = capsys.readouterr().out
    assert "8 heads of" in out
    assert "over 1 text\n" in out
    assert [line.split()[:2] for line in out.splitlines()[-8:]] == [[str(1 + n // 4), str(n % 4)] for n in range(8)]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_skipped_lines_are_reported(
    options: list[str], call: Callable[..., int], texts: Path, capsys: Captured
) -> None:
    texts.write_text("the film " * 200 + "\nthe film was bad\nwe love the water\nyou had a hot day\n")
    assert call("--text", str(texts), "--limit", "1", *options) == 0
    out, error = capsys.readouterr()
    notes = [line for line in error.splitlines() if not line.startswith("reading: ")]
    left_out, truncated = notes
    assert "2 lines" in left_out and "--limit" in left_out
    assert "1 of 1 texts" in truncated and "128 tokens" in truncated
    if options:
        assert json.loads(out)["notes"] == notes
    assert call("--text", str(texts), "--limit", "2", *options) == 0
    assert "left out" not in capsys.readouterr().err


def test_the_page(
    call: Callable[..., int], texts: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.render import bundle

    monkeypatch.setattr(bundle, "page", lambda payload, title: json.dumps(payload))
    assert call("--text", str(texts), "--output", str(tmp_path / "page.html")) == 0
    payload = json.loads((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert payload["view"] == "heads"
    assert payload["cli"].startswith(f"regard heads --text {texts} --model ")
    assert set(payload["about"]) == set(payload["counts"])
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"


def test_messages(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    assert call("--text", "texts.txt", "--output", "page.txt") == 2
    assert "page.txt" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("\n\n")
    assert call("--text", str(tmp_path / "empty.txt")) == 2
    assert "is empty: expected at least one row" in capsys.readouterr().err
    assert call("--text", str(tmp_path / "missing.txt")) == 2
    assert "there is no file" in capsys.readouterr().err
