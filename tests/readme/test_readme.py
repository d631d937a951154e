"""Runs the README as printed: its commands in a copy of examples/, its Python, and the rows of its table."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

import regard
from regard.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = [row.split(" | ")[1:] for row in re.findall(r"^\| (.* \| `regard .*) \|$", README, re.MULTILINE)]
TABLE = [cells[0].strip("`") for cells in ROWS]
BLOCKS = re.findall(r"^    (regard .*)$", README, re.MULTILINE)
INLINE = re.findall(r"^`(regard embed [^`]*)`", README, re.MULTILINE)
COMMANDS = [*dict.fromkeys([*TABLE, *BLOCKS, *INLINE])]  # each once, in an order in which they find their files
SERVERS = ("serve", "studio")
TEXTS = ["a fine day", "a bad day", "a good film", "a bad film"] * 3


def uses_pretraining(command: str) -> bool:
    return "my-gpt" in command


def is_server(command: str) -> bool:
    return command.split()[1] in SERVERS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    """A copy of examples/ beside the documentation, as in a clone."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs").mkdir()
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        shutil.copy(page, tmp_path / page.relative_to(ROOT))
    monkeypatch.chdir(tmp_path / "examples")
    return tmp_path / "examples"


@pytest.mark.long
@pytest.mark.timeout(900)  # a minute of computation
def test_the_commands_run(folder: Path, page_built: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Then the Python of the table, with the model that the command has fine-tuned."""
    assert len(TABLE) == 18 and len(INLINE) == 1
    for command in COMMANDS:
        if uses_pretraining(command) or is_server(command) or "--engine ray" in command:
            continue
        assert run(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
        assert capsys.readouterr().out, command
    names = [re.search(r" --(?:output|report) (\S+)", command) for command in COMMANDS if not uses_pretraining(command)]
    for name in names:
        assert name is None or name[1] == "vectors" or Path(name[1]).exists(), name
    answers = Path("answers.csv").read_text(encoding="utf-8").splitlines()
    assert answers[0].startswith("row,line,id,date,label,probability") and len(answers) == 11
    assert '"view":' in Path("compared.html").read_text(encoding="utf-8")
    check_the_python_of_the_table()


def check_the_python_of_the_table() -> None:
    frame = pandas.read_csv("reviews.csv", sep=";", encoding="utf-8-sig")
    variables: dict[str, Any] = {
        "regard": regard,
        "texts": Path("reviews.txt").read_text(encoding="utf-8").splitlines(),
        "frame": frame,
        "more": pandas.read_csv("more.csv"),
        "new": pandas.read_csv("new.csv"),
    }
    for _, code in ROWS:
        line = code.strip("`")
        if line.startswith("regard.pretrain("):
            continue
        if line.startswith("model = regard.fit("):  # the same training as that of the command, shortened
            line = line.replace("regard.fit(frame,", "regard.fit(frame[:24], epochs=1, split='70/30',")
        exec(compile(line, "README.md", "exec"), variables)


@pytest.mark.long
def test_the_pretraining_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [command for command in COMMANDS if uses_pretraining(command)]
    assert [command.split()[1] for command in commands] == ["pretrain", "pretrain", "generate", "perplexity", "score"]
    size = sum(path.stat().st_size for pattern in ("../docs/*.md", "../*.md") for path in folder.glob(pattern))
    assert 300_000 < size < 600_000
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
        out, error = capsys.readouterr()
        assert out
        if command == commands[0]:
            assert "settings for a CPU" in error and "plan: " in error
            log = [json.loads(line) for line in Path("my-gpt/events.jsonl").read_text().splitlines()]
            losses = [event["loss"] for event in log if event["type"] == "step"]
            assert losses[-1] < losses[0]
        if command == commands[1]:  # it is finished
            assert "plan: " not in error


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_built: None) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"texts": TEXTS, "labels": [1, 0, 1, 0] * 3}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "attention.html").stat().st_size > 100_000
    assert names["classifier"].predict(TEXTS).shape == (len(TEXTS),)
    model, changed = names["model"], names["changed"]
    plain = model(names["ids"])
    assert changed.shape == plain.shape and not torch.equal(changed, plain)


@pytest.mark.parametrize("command", [command for command in COMMANDS if is_server(command)])
def test_the_options_of_servers_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """That they serve is tested in tests/server."""
    assert run([*shlex.split(command)[1:], "--help"]) == 0
    assert all(word in capsys.readouterr().out for word in command.split() if word.startswith("--"))


@pytest.mark.slow
def test_the_command_on_ray_runs(folder: Path) -> None:
    (command,) = (command for command in COMMANDS if "--engine ray" in command)
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_figure_is_filled_in() -> None:
    assert not re.search(r"\b(NUMBER|TODO|XXX|TBD)\b", README)


def test_linked_files_and_pictures_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_words_are_those_of_a_product() -> None:
    assert not re.search(r"\b(decks?|lectures?|errat(a|um)|slides?)\b", README, re.IGNORECASE)


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.stem)
def test_pages_are_wrapped(page: Path) -> None:
    """Tables, code and links have lines of their own length."""
    prose = re.sub(r"^```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "    ", "`", "["))]
    assert [line for line in lines if len(line) > 120] == []
