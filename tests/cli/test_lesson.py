"""`regard lesson`: its output, files and errors."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.cli import lesson
from regard.cli.app import run
from regard.files.output_file import HTML_MARK
from regard.lessons import reverse
from regard.lessons.course.course import CHAPTERS

Captured = pytest.CaptureFixture[str]
SMALL = ("--steps", "3", "--features", "5", "--units", "6", "--train-size", "60", "--test-size", "12", "--epochs", "2")


def regard(*arguments: str) -> int:
    return run(arguments, registers=[lesson.register])


def test_without_a_name_lessons_are_listed(capsys: Captured) -> None:
    assert regard("lesson") == 0
    out = capsys.readouterr().out
    names = re.findall(r"^ *(?:\d+  )?([a-z][a-z-]+)  +\S", out, flags=re.MULTILINE)
    assert names == [*CHAPTERS, "reverse", "six-words"]


def test_an_unknown_lesson_is_an_error(capsys: Captured) -> None:
    assert regard("lesson", "revers") == 2
    assert "no lesson 'revers'; did you mean 'reverse'?" in capsys.readouterr().err


def test_help_does_not_import_torch() -> None:
    code = "import sys; from regard.cli.app import run; run(sys.argv[1:]); assert 'torch' not in sys.modules"
    for words in (["lesson"], ["lesson", "reverse", "--help"], ["lesson", "six-words", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_reverse_prints_the_scores_of_all_runs_and_writes_the_page(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "page.html"
    assert regard("lesson", "reverse", *SMALL, "--lengths", "3,4", "--jobs", "1", "--output", str(page)) == 0
    captured = capsys.readouterr()
    for words in ("99.550", "98.125", "no attention", "additive, deck", "digits to reverse", "60 sequences", str(page)):
        assert words in " ".join(captured.out.split()), words
    assert "no attention, 4 steps: " in captured.err
    text = page.read_text(encoding="utf-8")
    assert (text.count('"kind":"map"'), text.count('"kind":"chart"')) == (8, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_json_document_of_reverse_depends_on_the_seed(capsys: Captured) -> None:
    def document(seed: str) -> dict[str, Any]:
        assert regard("lesson", "reverse", *SMALL, "--lengths", "4", "--jobs", "1", "--seed", seed, "--json") == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        for one in [*result["runs"], *(one for entry in result["lengths"] for one in entry["runs"])]:
            assert one.pop("seconds") > 0
        return result

    first = document("1")
    assert [(one["score"], one["recipe"]) for one in first["runs"]] == [
        ("none", None),
        *((score, recipe) for recipe in ("luong", "deck") for score in ("dot", "general", "additive")),
    ]
    for one in first["runs"]:
        assert one["epochs"] == 2
        assert 0 <= one["test_token_accuracy"] <= 100
        assert 0 <= one["train_token_accuracy"] <= 100
        assert (one["alignment_accuracy"] is None) == (one["score"] == "none")
    assert [entry["steps"] for entry in first["lengths"]] == [3, 4]
    assert first["deck"] == {"train_token_accuracy": 99.55, "test_token_accuracy": 98.125}
    assert first["setting"]["units"] == 6
    assert first["page"] is None
    assert document("1") == first
    assert document("2") != first


def never(*arguments: object, **options: object) -> Iterator[reverse.ReverseEpoch]:
    raise AssertionError("training began")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "steps must be at least 1, not 0"),
        (["--train-size", "10000"], "only 10^4 = 10,000 different sequences"),
        (["--epochs", "0"], "epochs must be at least 1, not 0"),
        (["--units", "-1"], "units must be at least 1, not -1"),
        (["--learning-rate", "0"], "learning rate must be a number above 0, not 0.0"),
        (["--jobs", "0"], "jobs must be at least 1, not 0"),
        (["--lengths", "4,x"], "such as 4,8,12, not '4,x'"),
        (["--lengths", "0"], "steps must be at least 1, not 0"),
        (["--output", "missing/page.html"], "there is no folder"),
        (["--output", "page.txt"], "--output is 'page.txt'; expected a file name that ends in .html"),
    ],
)
def test_invalid_input_is_an_error_before_training(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reverse, "train_reverse", never)
    assert regard("lesson", "reverse", *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert list(tmp_path.iterdir()) == []


def without_status(printed: str) -> list[str]:
    """Lines that are no status line, of which a busy machine has more."""
    return [line for line in printed.splitlines() if ": epoch " not in line]


@pytest.mark.long
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_leaves_the_old_page_and_no_process(jobs: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(HTML_MARK)
    command = [sys.executable, "-m", "regard", "lesson", "reverse", *SMALL, "--epochs", "1000000", "--jobs", jobs]
    with subprocess.Popen(
        [*command, "--output", str(page)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        while ": epoch " not in (line := process.stderr.readline()) and line:
            pass
        # Sent to the whole process group, as a terminal does.
        subprocess.run(["kill", "-INT", "--", f"-{process.pid}"], check=True)
        assert process.wait(timeout=120) == 130
        assert without_status(process.stderr.read()) == ["interrupted"]  # ends when no child process holds it open
        assert process.stdout.read() == ""
    assert page.read_text() == HTML_MARK
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.long
def test_sigterm_ends_all_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "lesson", "reverse", *SMALL, "--epochs", "1000000", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while ": epoch " not in (line := process.stderr.readline()) and line:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143
        assert without_status(process.stderr.read()) == ["terminated"]


def test_six_words_prints_tables_loss_and_steps(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "page.html"
    assert regard("lesson", "six-words", "--output", str(page)) == 0
    out = capsys.readouterr().out
    for words in (
        "je suis étudiant → I am a student <eos>\n\nProbabilities before training:\n",
        "Probabilities after training:\n",
        "merci → thanks <eos>\n",
        "summed cross-entropy",
        "<eos> I am a student ",
    ):
        assert words in out, words
    assert "I am a student" in page.read_text(encoding="utf-8")


def test_the_json_document_of_six_words(capsys: Captured) -> None:
    assert regard("lesson", "six-words", "--json", "--seed", "3") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["vocabulary"] == ["a", "am", "I", "thanks", "student", "<eos>"]
    assert document["losses"][-1] < 0.2
    student, thanks = document["pairs"]
    assert student["source"] == "je suis étudiant"
    assert [step["chosen"] for step in student["decoding"]] == ["I", "am", "a", "student", "<eos>"]
    assert student["decoding"][2]["prefix"] == ["<eos>", "I", "am"]
    assert [len(student["before"]), len(thanks["after"])] == [5, 2]


def test_six_words_writes_only_pages(tmp_path: Path, capsys: Captured) -> None:
    assert regard("lesson", "six-words", "--epochs", "1", "-o", str(tmp_path / "page.txt")) == 2
    assert "expected a file name that ends in .html" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_six_words_needs_an_epoch(capsys: Captured) -> None:
    assert regard("lesson", "six-words", "--epochs", "0") == 2
    assert "epochs must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_long_sequences_need_attention(capsys: Captured) -> None:
    """B4: with one configuration, every score learns the task in a recipe; a model without attention does not."""
    begin = time.process_time()
    assert regard("lesson", "reverse", "--steps", "20", "--features", "16", "--jobs", "1", "--json") == 0
    cpu = time.process_time() - begin
    runs = json.loads(capsys.readouterr().out)["runs"]
    best = {
        score: max(one["test_token_accuracy"] for one in runs if one["score"] == score)
        for score in ("none", "dot", "general", "additive")
    }
    assert best["none"] <= 80
    assert min(best[score] for score in ("dot", "general", "additive")) >= 98
    attending = [one for one in runs if one["score"] != "none"]
    assert max(attending, key=lambda one: one["test_token_accuracy"])["alignment_accuracy"] >= 99
    assert cpu < 2 * 15 * 60, "15 minutes on two cores"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_configuration_of_the_deck_reaches_its_scores(capsys: Captured) -> None:
    assert regard("lesson", "reverse", "--lengths", "4", "--jobs", "1", "--json") == 0
    plain, *attending = json.loads(capsys.readouterr().out)["runs"]
    assert plain["train_token_accuracy"] == pytest.approx(99.55, abs=0.6)
    assert plain["test_token_accuracy"] == pytest.approx(98.125, abs=1.125)
    assert max(one["test_token_accuracy"] for one in attending) >= 99
