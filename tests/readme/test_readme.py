"""Runs the README: its Python code with a tiny model, and its commands with their options."""

from __future__ import annotations

import csv
import lzma
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.nn.recording import ablate_heads

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (regard .*)$", README, re.MULTILINE)
TEXTS = ["a fine day", "a bad day", "a good film", "a bad film"] * 3


def test_the_python_runs(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_built: None
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"texts": TEXTS, "labels": [1, 0, 1, 0] * 3}
    for block in blocks:
        # The tiny model has two layers; the README names a layer and a head of a larger model.
        code = block.replace("path/to/bert", str(tiny_bert_folder)).replace("(3, 1)", "(2, 1)")
        exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "attention.html").stat().st_size > 100_000
    assert names["classifier"].predict(TEXTS).shape == (len(TEXTS),)
    model, changed = names["model"], names["changed"]
    plain = model(names["ids"])
    assert changed.shape == plain.shape and not torch.equal(changed, plain)
    assert ablate_heads([(2, 1)]).heads == {(2, 1)}


def test_the_pretraining_commands_run(tmp_path: Path) -> None:
    """Runs the commands in order with the same options, fewer steps and a smaller model."""
    (tmp_path / "articles").mkdir()
    lines = [
        f"{a} {b} in the {c}."
        for a in ("a dog", "the cat", "one bird")
        for b in ("sat", "ran")
        for c in ("sun", "wood")
    ]
    documents = ["\n".join([*lines[n:], *lines[:n]] * 4) for n in range(len(lines))]
    (tmp_path / "articles" / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (tmp_path / "books.txt.xz").write_bytes(lzma.compress("\n\n".join(documents).encode()))
    (tmp_path / "README.md").write_text(lines[0], encoding="utf-8")
    shape = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "max_position_embeddings": 64,
    }
    small = [f"model.{key}={value}" for key, value in shape.items()]
    small += ["data.max_length=32", "data.tokens_per_batch=128", "schedule.budget=", "schedule.max_steps=2"]
    verbs = ("pretrain", "fill", "next", "perplexity", "generate", "score", "cost")
    commands = [c for c in COMMANDS if c.split()[1] in verbs]
    assert len(commands) == 10
    for command in commands:
        words = shlex.split(command)
        if words[1] == "pretrain" and "--resume" not in words:
            words += ["--set", f"vocabulary.vocab_size={50 if words[2] == 'bert' else 270}"]
            words += [word for setting in small for word in ("--set", setting)]
            if "--budget" in words:
                del words[words.index("--budget") : words.index("--budget") + 2]
        words = [str(ROOT / word) if word.startswith("configs/") else word for word in words]
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout


def test_the_commands_from_a_file_to_answers_run(tiny_bert_folder: Path, tmp_path: Path) -> None:
    """Runs the commands in order on the reviews of the examples, with the tiny model."""
    reviews = (ROOT / "examples" / "reviews.csv").read_text(encoding="utf-8-sig")
    with open(ROOT / "examples" / "reviews.csv", encoding="utf-8-sig", newline="") as file:
        labeled = [row for row in csv.DictReader(file, delimiter=";") if row["sentiment"]]
    for name in ("reviews.csv", "new.csv"):
        (tmp_path / name).write_text(reviews, encoding="utf-8")
    with open(tmp_path / "more.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, labeled[0])
        writer.writeheader()
        writer.writerows(labeled)
    section = README.partition("## From a file to answers")[2].partition("## Serve")[0]
    commands = re.findall(r"^    (regard .*)$", section, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        words = shlex.split(command)
        if words[1] in ("index", "train"):  # the others have the model of the folder
            words += ["--model", str(tiny_bert_folder)]
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout, (command, done.stdout, done.stderr)
    answers = (tmp_path / "answers.csv").read_text(encoding="utf-8")
    assert answers.startswith("row,line,id,date,label,probability")
    assert len(list(csv.reader(answers.splitlines()))) >= 102


def test_the_translation_commands_run(tmp_path: Path) -> None:
    """Runs the commands with a smaller model and one epoch."""
    words = {"a": "ein", "man": "mann", "dog": "hund", "sleeps": "schläft", "runs": "läuft"}
    source = [
        f"a {who} {does} in a {where}" for who in ("man", "dog") for does in ("sleeps", "runs") for where in "xyz"
    ]
    for name in ("train", "val"):
        (tmp_path / f"{name}.en").write_text("".join(f"{one}\n" for one in source * 4))
        target = (" ".join(words.get(word, word) for word in one.split()) for one in source * 4)
        (tmp_path / f"{name}.de").write_text("".join(f"{one}\n" for one in target), encoding="utf-8")
    small = [
        "model.hidden_size=16",
        "model.num_attention_heads=2",
        "model.intermediate_size=32",
        "model.num_hidden_layers=1",
        "training.num_epochs=1",
    ]
    commands = [c for c in COMMANDS if c.startswith(("regard train translate", "regard translate"))]
    assert len(commands) == 3
    for command in commands:
        given = shlex.split(command)
        if given[1] == "train":
            given += [word for setting in (*small, "vocabulary.vocab_size=280") for word in ("--set", setting)]
        done = subprocess.run([sys.executable, "-m", *given], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "alignments.json").stat().st_size > 0


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.split()[1] in ("lesson", "senses", "lens")])
def test_lessons_run(command: str, tmp_path: Path) -> None:
    given = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_every_figure_is_filled_in() -> None:
    assert not re.search(r"\b(NUMBER|TODO|XXX|TBD)\b", README)


def test_linked_files_and_pictures_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_interpretation_commands_run(tmp_path: Path) -> None:
    commands = [c for c in COMMANDS if c.split()[1] in ("look", "compare", "figure", "ablate")]
    assert len(commands) == 4 and "regard studio" in COMMANDS
    for command in commands:
        words = shlex.split(command)
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        if "--output" in words:
            assert '"view":' in (tmp_path / words[-1]).read_text(encoding="utf-8")
        else:
            assert done.stdout
