"""`regard pretrain`: its output, and one-line errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.cli import commands
from regard.cli.app import run, verb_commands
from regard.data.corpus import CorpusProgress
from regard.errors import InputError
from regard.files.durable_folder import FolderRecord
from regard.training import speed
from tests.training.recipes.pretraining.runs import command, ignore_preparation, settings, step_clock, story

STORY = story()
DOCUMENTS = STORY.split("\n\n")
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command, with texts; the speed measurement before a run is shortened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    files: dict[str, bytes] = {
        "story.txt": STORY.encode(),
        "empty.txt": b"\n \n",
        "single.txt": STORY.replace("\n\n", "\n").encode(),
        "three.txt": "\n\n".join(map("\n".join, (DOCUMENTS[:50], DOCUMENTS[50:110], DOCUMENTS[110:]))).encode(),
        "latin.txt": b"the river\nthe caf\xe9\n",
        "utf16.txt": STORY.encode("utf-16"),
        "short.txt": b"The river follows the painter.\n\nThe city builds.\n",
        "settings.toml": b"[optimizer]\nlearning_raet = 1.0\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def call(*more: str, corpus: str = "story.txt", output: str = "run", **changed: Any) -> int:
    arguments = command(Path(corpus), Path(output), *more, **changed)
    return run(arguments, registers=verb_commands())


def test_results_go_to_stdout_and_messages_to_stderr(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "STATUS_EVERY", 0.0)
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    assert call(objective_sentence_pairs="next", run_evaluate_every="6 steps") == 0
    out, error = capsys.readouterr()
    first, words, pairs = out.splitlines()
    assert first.startswith("run: 12 steps, 2,") and re.search(r" tokens in \ds$", first)
    assert words.startswith("tokens: loss ") and words.endswith("%")
    assert pairs.startswith("next sentence: loss 0.")
    lines = error.splitlines()
    assert "wordpiece vocabulary" in lines[0] and "120 entries" in lines[0]
    assert lines[1].startswith("corpus: 120 documents, ")
    assert lines[3].startswith("plan: 12 steps of ") and "tokens/s (MFU 0." in lines[3]
    assert lines[4].startswith("      3,072 tokens, 0.")
    assert [line.split("  ")[0] for line in lines[5:] if "held-out" not in line] == [f"step {k}" for k in range(1, 13)]
    assert "step 6, held-out text: tokens: loss " in error and "s left" in lines[6]


def test_one_json_document(capsys: Captured) -> None:
    assert call("--json", family="gpt", schedule_max_steps=2) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == "run" and document["steps"] == 2 and document["tokens"] > 0
    assert set(document) == {"output", "steps", "tokens", "seconds", "tokens_per_second", "scores"}
    assert document["tokens_per_second"] == pytest.approx(document["tokens"] / document["seconds"])
    assert set(document["scores"]["lm"]) == {"loss", "perplexity", "count"}


@pytest.mark.parametrize(("family", "names"), [("t5", ["dropped spans"]), ("elmo", ["next token", "previous token"])])
def test_other_families(family: str, names: list[str], capsys: Captured) -> None:
    assert call(family=family, run_evaluate_every="1 steps", schedule_max_steps=2) == 0
    out, error = capsys.readouterr()
    lines = out.splitlines()[1:]
    assert [line.partition(":")[0] for line in lines] == names
    assert all(": loss " in line and ", perplexity " in line for line in lines)
    assert f"step 1, held-out text: {names[0]}: loss " in error
    assert "LSTM" not in error
    bare = ["pretrain", family, "-c", "story.txt", "-o", "run", "--resume", "--json"]
    assert run(bare, registers=verb_commands()) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2


def test_a_run_is_resumed_with_its_own_settings(capsys: Captured) -> None:
    assert call("--resume", schedule_max_steps=2) == 0  # there is no run yet: it starts one
    first = capsys.readouterr()
    assert "run: 2 steps" in first.out and "plan: 2 steps" in first.err
    bare = ["pretrain", "bert", "-c", "story.txt", "-o", "run", "--resume"]
    assert run(bare, registers=verb_commands()) == 0
    second = capsys.readouterr()
    assert second.out == first.out and "plan" not in second.err  # the run is finished: nothing is done
    record = FolderRecord.read(Path("run"))
    assert record is not None
    replace(record, finished=False).write(Path("run"))  # as if it had been killed before writing this
    assert run(bare, registers=verb_commands()) == 0
    assert "resuming after step 2 and 0s of training" in capsys.readouterr().err
    assert run([*bare, "--set", "run.seed=1"], registers=verb_commands()) == 2
    error = capsys.readouterr().err
    assert "was started with other settings: " in error and "run.seed was 0 and is 1" in error
    assert call(schedule_max_steps=2) == 2
    assert "continue it with --resume" in capsys.readouterr().err


def test_a_budget_overrides_the_settings_file(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_preparation(monkeypatch)
    step_clock(monkeypatch)
    given = [value for value in settings() if not value.startswith("schedule.")]
    (folder / "settings.toml").write_text("[schedule]\nmax_steps = 1000000\n")
    arguments = [part for value in given for part in ("--set", value)]
    base = ["pretrain", "bert", "-c", "story.txt", "-o", "run", "--config", "settings.toml", *arguments]
    assert run([*base, "--budget", "0.3s", "--json"], registers=verb_commands()) == 0
    assert 0.3 <= json.loads(capsys.readouterr().out)["seconds"] < 0.4


WRONG: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "empty": ({"corpus": "empty.txt"}, [], "the corpus is empty: there is no text in empty.txt"),
    "empty gpt": ({"corpus": "empty.txt", "family": "gpt"}, [], "the corpus is empty: there is no text in empty.txt"),
    "missing": ({"corpus": "storry.txt"}, [], "there is no file storry.txt; did you mean story.txt"),
    "one document": (
        {"corpus": "single.txt", "objective_sentence_pairs": "next"},
        [],
        "the text to train on is one document, so next-sentence pairs cannot be made: put a blank line between",
    ),
    "latin-1": ({"corpus": "latin.txt"}, [], "latin.txt line 2: byte 8 of the line, 0xe9, is not UTF-8; convert the"),
    "utf-16": ({"corpus": "utf16.txt"}, [], "utf16.txt line 1: this is UTF-16, expected UTF-8; convert it: iconv"),
    "vocabulary": (
        {"vocabulary_vocab_size": 5000, "vocabulary_exact": "true"},
        [],
        "a vocabulary of 5,000 entries was requested, but this text supports 126 (pieces that occur at least 2 times)",
    ),
    "unknown key": (
        {},
        ["--set", "optimizer.learning_raet=1"],
        "--set optimizer.learning_raet=1: unknown key 'learning_raet' in [optimizer]; did you mean 'learning_rate'?",
    ),
    "unknown key in a file": (
        {},
        ["--config", "settings.toml"],
        "settings.toml: unknown key 'learning_raet' in [optimizer]; did you mean 'learning_rate'?",
    ),
    "no length": ({"schedule_max_steps": 0}, [], "how long to train? give a budget such as --budget 20min, or --set"),
    "two lengths": ({}, ["--budget", "5min"], "how long to train? give a budget such as --budget 20min, or --set"),
    "no duration": (
        {"schedule_max_steps": 0},
        ["--budget", "soon"],
        "'soon' is not a duration; expected hours, minutes",
    ),
    "output below a file": (
        {"output": "story.txt/run"},
        [],
        "story.txt/run cannot be written: Not a directory; choose",
    ),
    "output is a file": ({"output": "short.txt"}, [], "short.txt cannot be written: File exists; choose another"),
    "short held-out text": (
        {},
        ["--heldout", "short.txt"],
        "the text to evaluate on has 10 tokens, too few for one row of 30: use more text, or shorter rows",
    ),
    "short text": (
        {"corpus": "short.txt", "vocabulary_vocab_size": 40, "objective_sentence_pairs": "none"},
        [],
        "too few for one row of 30: use more text, or a smaller data.max_length",
    ),
    "no pairs in what is kept": (
        {"corpus": "three.txt", "objective_sentence_pairs": "next"},
        [],
        "use more text, or longer rows; or name a text to evaluate on with --heldout",
    ),
    "no such model": ({}, ["--start", "./nowhere"], "./nowhere: no such folder"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_input_is_a_one_line_error(name: str, capsys: Captured) -> None:
    changed, more, message = WRONG[name]
    assert call(*more, **changed) == 2
    out, error = capsys.readouterr()
    last = error.splitlines()[-1]
    assert out == "" and last.startswith("error: ") and message in last
    assert error.count("error") == 1 and "Traceback" not in error and "internal" not in error


@pytest.mark.parametrize("name", ["no such model", "vocabulary", "latin-1", "unknown key"])
def test_an_error_can_be_corrected_in_the_same_folder(name: str) -> None:
    changed, more, _ = WRONG[name]
    assert call(*more, **changed) == 2
    assert call(schedule_max_steps=1) == 0


@pytest.mark.parametrize(("family", "least"), [("bert", 0), ("elmo", 0), ("gpt", 257), ("t5", 358)])
def test_the_size_suggested_by_an_error_works(family: str, least: int, capsys: Captured) -> None:
    assert call(family=family, vocabulary_vocab_size=5000, vocabulary_exact="true") == 2
    error = capsys.readouterr().err
    named = re.search(r"give more text.*: --set (vocabulary\.vocab_size)=(\d+)$", error.strip())
    assert named is not None and int(named[2]) > least
    assert call(family=family, vocabulary_vocab_size=int(named[2]) + 1, vocabulary_exact="true") == 2
    assert call(family=family, vocabulary_vocab_size=10) == 2
    few = re.search(r": --set vocabulary\.vocab_size=(\d+)$", capsys.readouterr().err.strip())
    assert few is not None and (int(few[1]) == least or not least)
    assert call(family=family, vocabulary_vocab_size=int(few[1]) - 1) == 2
    assert call(family=family, vocabulary_vocab_size=int(few[1]), schedule_max_steps=1, output="few") == 0
    more = {"vocabulary_vocab_size": int(named[2]), "vocabulary_exact": "true"}
    assert call(family=family, schedule_max_steps=1, **more) == 0


@pytest.mark.parametrize("family", ["bert", "gpt", "t5", "elmo", "electra"])
def test_a_vocabulary_size_is_an_upper_bound(family: str, capsys: Captured) -> None:
    assert call(family=family, vocabulary_vocab_size=5000, schedule_max_steps=1) == 0
    error = capsys.readouterr().err
    said = re.search(r"the vocabulary has ([\d,]+) entries: the text supports no more", error)
    assert "vocabulary of at most 5,000 entries" in error and said is not None
    assert json.loads(Path("run/config.json").read_text())["vocab_size"] == int(said[1].replace(",", ""))


def test_fitted_settings_are_saved_and_resumed(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    short = ["--device", "cpu", "--set", "schedule.max_steps=1", "--set", "objective.sentence_pairs=order"]
    short += ["--set", "data.tokens_per_batch=256"]
    base = ["pretrain", "bert", "-c", "story.txt", "-o", "run", *short]
    assert run(base, registers=verb_commands()) == 0
    assert "model.hidden_size=128" in capsys.readouterr().err
    saved = Path("run/config.toml").read_text()
    assert "hidden_size = 128" in saved and "tokens_per_batch = 256" in saved
    monkeypatch.setattr("regard.training.recipes.pretraining.fit.SHAPES", ((64, 1),))  # as on another machine
    Path("more.toml").write_text("[optimizer]\nlearning_rate = 0.002\n")
    for more in ([], ["--config", "more.toml"]):
        assert run([*base, "--resume", *more], registers=verb_commands()) == 0, capsys.readouterr().err
    assert Path("run/config.toml").read_text() == saved


def test_the_error_for_an_unreadable_file_does_not_suggest_a_size(capsys: Captured) -> None:
    assert call(family="t5", corpus="latin.txt") == 2
    error = capsys.readouterr().err
    assert "is not UTF-8" in error and "vocabulary.vocab_size" not in error


def test_the_progress_bar_is_closed_when_the_build_fails(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """An open progress bar hides the cursor of a terminal."""
    updates: list[str] = []

    @contextmanager
    def progress(*_: Any, **__: Any) -> Iterator[Callable[[int], None]]:
        try:
            yield lambda more: updates.append(f"{more} more")
        except InputError:
            updates.append("away")
            raise

    def build(*_: Any, **__: Any) -> Iterator[CorpusProgress]:
        yield CorpusProgress(5, 20, 2, 100)
        yield CorpusProgress(9, 20, 2, 200)
        raise InputError("a bad line")

    monkeypatch.setattr("regard.cli.commands.progress", progress)
    monkeypatch.setattr("regard.training.recipes.pretraining.corpus.corpus_events", build)
    assert call() == 2
    assert updates == ["3 more", "4 more", "away"]


def test_a_corpus_given_under_two_names(folder: Path, capsys: Captured) -> None:
    (folder / "more.txt").write_text(story(30, seed=4), encoding="utf-8")
    assert call("--corpus", "more.txt", schedule_max_steps=1) == 0
    assert "corpus: 150 documents" in capsys.readouterr().err


def test_a_damaged_corpus_is_a_one_line_error(folder: Path, capsys: Captured) -> None:
    """A flipped bit changes neither size nor modification time: --verify always finds it."""
    assert call() == 0
    tokens = folder / "run" / "corpus" / "shard-000000" / "tokens.bin"
    assert call(corpus="run/corpus", output="second") == 0
    state, content = tokens.stat(), bytearray(tokens.read_bytes())
    content[100] ^= 1
    tokens.write_bytes(content)
    os.utime(tokens, ns=(state.st_atime_ns, state.st_mtime_ns))
    capsys.readouterr()
    assert call("--verify", "always", corpus="run/corpus", output="third") == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith(f"error: {tokens} is damaged") and error.count("\n") == 1
    path = folder / "run" / "config.toml"
    path.write_text(path.read_text().replace("rate = 0.01", "rate = 0.02"))
    assert call("--resume") == 2
    assert "config.toml is damaged" in capsys.readouterr().err
