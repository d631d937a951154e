"""`regard compare`: tables, the JSON document, the page and messages."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.interpret.masked_lm.predictions import WARNING

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def call(tiny_bert_folder: Path) -> Callable[..., int]:
    """Run `regard compare` in this process with the tiny model."""

    def regard_compare(*arguments: str) -> int:
        return run(["compare", *arguments, "--model", str(tiny_bert_folder)])

    return regard_compare


@pytest.fixture
def stored(tmp_path: Path) -> list[str]:
    (tmp_path / "vocab.txt").write_text("tea\nice\nox\n")
    for name, logits in (("in-texas", [1.0, 2.0, 3.0]), ("in-new-york", [3.0, 2.0, 0.0])):
        with gzip.open(tmp_path / f"{name}.json.gz", "wt") as file:
            json.dump(logits, file)
    files = [str(tmp_path / f"in-{name}.json.gz") for name in ("texas", "new-york")]
    return ["--logits", ",".join(files), "--vocab", str(tmp_path / "vocab.txt")]


def test_the_json_document(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("he was a _", "she was a _", "--top", "200", "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert document == regard.compare("he was a _", "she was a _", model=tiny_bert_folder, top=200).to_dict()
    assert list(document) == ["a", "b", "labels", "values", "caption", "tokens"]
    assert error == f"note: {WARNING}\n"


def test_stored_logits(stored: list[str], capsys: Captured) -> None:
    assert run(["compare", *stored]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "The model associates these words more with texas than new york: ox. "
        "It associates these more with new york than texas: tea.",
        "",
        "  token      texas   new york  difference of log-probabilities",
        "  tea       9.003%    70.538%       -2.06",
        "  ice      24.473%    25.950%       -0.06",
        "  ox       66.524%     3.512%       +2.94",
    ]
    assert run(["compare", *stored, "--values", "logits"]) == 0
    assert "  tea       9.003%    70.538%       -2.00" in capsys.readouterr().out.splitlines()


def test_a_chart_may_have_more_tokens_than_the_table(call: Callable[..., int], capsys: Captured) -> None:
    assert call("he was a _", "it is the most _") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("more in the chart, which --json and --output have")
    assert len(lines) == 3 + 30 + 1


@pytest.mark.parametrize(
    ("texts", "output"),
    [
        (["in [1|2] [he|she] _"], "1 / he"),
        (["in [1901..1905] [he|she] _"], "1901 to 1905"),
        (["the film was _"], "film: "),
    ],
)
def test_every_kind_of_comparison_prints_text(
    call: Callable[..., int], capsys: Captured, texts: list[str], output: str
) -> None:
    assert call(*texts) == 0
    assert output in capsys.readouterr().out


def test_the_page_has_the_view(
    call: Callable[..., int], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.render import bundle

    monkeypatch.setattr(bundle, "page", lambda payload, title: json.dumps(payload))
    assert call("he was a _", "she was a _", "--output", str(tmp_path / "page.html")) == 0
    payload = json.loads((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert (payload["view"], payload["kind"], payload["warning"]) == ("compare", "pair", WARNING)
    assert [sentence["text"] for sentence in payload["sentences"]] == ["he was a _", "she was a _"]
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a sentence with a blank"),
        (["a _", "b _", "--vocab", "v.txt"], "--vocab goes with --logits"),
        (["--logits", "a,b"], "needs --vocab"),
        (["a _", "b _", "--top", "0"], "top is"),
        (["a _", "b _", "--logits", "x"], "logits is"),
    ],
)
def test_invalid_arguments_are_errors(
    call: Callable[..., int], capsys: Captured, arguments: list[str], message: str
) -> None:
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
