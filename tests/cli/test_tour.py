"""`regard tour`: its output, its files and its errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.cli import lesson
from regard.cli.app import run
from regard.files.output_file import HTML_MARK
from regard.lessons import reverse, tour

Captured = pytest.CaptureFixture[str]


def regard(*arguments: str) -> int:
    return run(arguments, registers=[lesson.register])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tour that takes seconds, in a temporary folder."""
    monkeypatch.setattr(tour, "CONFIG", replace(tour.CONFIG, epochs=2, train_size=200, test_size=50))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_story_is_printed_and_written_as_a_page(short: Path, capsys: Captured) -> None:
    assert regard("tour") == 0
    captured = capsys.readouterr()
    for words in (
        "2 8 1 6 → 6 1 8 2",
        "200 sequences",
        "99.550",
        "98.125",
        "without attention",
        "with attention (Luong dot)",
        "Luong's recipe",
        "anti-diagonal",
        "regard-tour.html",
        "regard embed --help",
        "regard models",
    ):
        assert words in " ".join(captured.out.split()), words
    assert [path.name for path in short.iterdir()] == ["regard-tour.html"]
    page = (short / "regard-tour.html").read_text(encoding="utf-8")
    assert page.count('"kind":"map"') == 2
    assert "2 8 1 6" in page
    assert "99.550" in page
    assert "training without attention: 2 epochs in " in captured.err


def test_the_json_document_depends_on_the_seed(short: Path, capsys: Captured) -> None:
    def document(seed: str) -> dict[str, Any]:
        assert regard("tour", "--json", "--seed", seed, "--output", "x.html") == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        for one in result["runs"]:
            assert one.pop("seconds") > 0
        return result

    first = document("1")
    assert first["page"] == "x.html" and (short / "x.html").is_file()
    assert first["deck"] == {"train_token_accuracy": 99.55, "test_token_accuracy": 98.125}
    plain, attending = first["runs"]
    assert (plain["score"], plain["recipe"], plain["alignment_accuracy"]) == ("none", None, None)
    assert (attending["score"], attending["recipe"], attending["epochs"]) == ("dot", "luong", 2)
    assert 0 <= attending["alignment_accuracy"] <= 100
    assert 0 < attending["test_token_accuracy"] <= 100
    assert first["matrix"]["read"] == ["2", "8", "1", "6"]
    for name in ("weights", "mean_weights"):
        assert [sum(row) for row in first["matrix"][name]] == pytest.approx([1] * 4, abs=1e-5)
    assert document("1") == first
    assert document("2") != first


def test_training_stops_at_the_target_accuracy(short: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(tour, "CONFIG", replace(tour.CONFIG, target_accuracy=0.0))
    assert regard("tour", "--json") == 0
    assert [one["epochs"] for one in json.loads(capsys.readouterr().out)["runs"]] == [1, 1]


def never(*arguments: object, **options: object) -> Iterator[reverse.ReverseEpoch]:
    raise AssertionError("training began")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("missing/page.html", "there is no folder"),
        ("page.txt", "--output is 'page.txt'; expected a file name that ends in .html"),
    ],
)
def test_a_page_that_cannot_be_written_is_an_error_before_training(
    output: str, message: str, short: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(reverse, "train_reverse", never)
    assert regard("tour", "--output", output) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert list(short.iterdir()) == []


LOUD = """
import sys
from regard.cli import lesson
from regard.cli.app import run
from regard.lessons import reverse

def loud(*arguments, train=reverse.train_reverse, **options):
    for epoch in train(*arguments, **options):
        print("an epoch is over", file=sys.stderr, flush=True)
        yield epoch

reverse.train_reverse = loud
sys.exit(run(["tour", "--output", sys.argv[1]], registers=[lesson.register]))
"""


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_leaves_the_old_page_and_no_other_file(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(HTML_MARK)
    command = [sys.executable, "-c", LOUD, str(page)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stdout is not None
        while process.stderr.readline() not in ("an epoch is over\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        assert process.stderr.read().splitlines()[-1] == "interrupted"
        assert process.stdout.read() == ""
    assert page.read_text() == HTML_MARK
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.slow
def test_the_tour_reaches_the_scores_of_the_deck(tmp_path: Path, capsys: Captured) -> None:
    begin = time.process_time()
    assert regard("tour", "--json", "--output", str(tmp_path / "page.html")) == 0
    cpu = time.process_time() - begin
    result = json.loads(capsys.readouterr().out)
    plain, attending = result["runs"]
    deck = result["deck"]
    assert plain["train_token_accuracy"] == pytest.approx(deck["train_token_accuracy"], abs=0.6)
    assert plain["test_token_accuracy"] == pytest.approx(deck["test_token_accuracy"], abs=1.125)  # so at least 97
    assert attending["test_token_accuracy"] >= 99
    assert attending["epochs"] < plain["epochs"]
    assert attending["alignment_accuracy"] >= 90
    for row, weights in enumerate(result["matrix"]["mean_weights"]):
        assert weights.index(max(weights)) == 3 - row
    assert cpu < 110, "the tour promises two minutes"
