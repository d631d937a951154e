"""Verbs that write a folder refuse one with unrelated files: the error names the path, and no file changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli.app import run
from tests.training.recipes.pretraining.runs import command, story

Captured = pytest.CaptureFixture[str]


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reviews(folder: Path) -> Path:
    path = folder / "reviews.tsv"
    path.write_text("the film is good\tpos\nit was dull\tneg\n" * 6, encoding="utf-8")
    return path


def classify(folder: Path, model: Path, output: Path) -> list[str]:
    data = str(reviews(folder))
    return ["train", "classify", "--train", data, "--dev", data, "-m", str(model), "-o", str(output)]


def both(folder: Path, model: Path, output: Path) -> list[str]:
    return [*classify(folder, model, output), "--both"]


def translate(folder: Path, model: Path, output: Path) -> list[str]:
    pairs = folder / "pairs.tsv"
    pairs.write_text("the dog\tder Hund\nthe cat\tdie Katze\n" * 6, encoding="utf-8")
    return ["train", "translate", "--train", str(pairs), "--dev", str(pairs), "-o", str(output)]


def pretrain(folder: Path, model: Path, output: Path) -> list[str]:
    (folder / "text.txt").write_text(story(20), encoding="utf-8")
    return command(folder / "text.txt", output)


Verb = Callable[[Path, Path, Path], list[str]]
FOREIGN: dict[Verb, list[str]] = {
    classify: ["seeds/thesis.txt", "report.md", "config.toml", "vocab.txt", "task.json", "run.json", "regard.json"],
    both: ["frozen/thesis.txt", "seeds/thesis.txt", "report.md"],
    translate: ["work/thesis.txt", "report.json", "tokenizer.json"],
    pretrain: ["corpus/thesis.txt", "checkpoints/thesis.txt", "vocab.txt", "config.toml"],
}


@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["begin", "resume"])
@pytest.mark.parametrize(("verb", "name"), [(verb, name) for verb, names in FOREIGN.items() for name in names])
def test_foreign_content_is_named_and_unchanged(
    tmp_path: Path, tiny_bert_folder: Path, capsys: Captured, verb: Verb, name: str, more: list[str]
) -> None:
    output = tmp_path / "thesis"
    (output / name).parent.mkdir(parents=True)
    (output / name).write_text("years of work")
    (output / "notes.txt").write_text("mine")
    before = state(output)
    assert run([*verb(tmp_path, tiny_bert_folder, output), *more]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert str(output) in error and Path(name).parts[0] in error
    assert state(output) == before


def index(folder: Path, model: Path, output: Path) -> list[str]:
    return ["index", str(reviews(folder)), "--columns", "0", "-m", str(model), "-o", str(output)]


def export(folder: Path, model: Path, output: Path) -> list[str]:
    return ["export", str(model), "--format", "onnx", "-o", str(output)]


def build(folder: Path, model: Path, output: Path) -> list[str]:
    return ["corpus", "build", str(reviews(folder)), "-o", str(output)]


@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("verb", [classify, translate, pretrain, index, export, build])
def test_a_link_to_a_folder_is_refused(
    tmp_path: Path, tiny_bert_folder: Path, capsys: Captured, verb: Verb, end: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    arguments = verb(tmp_path, tiny_bert_folder, tmp_path / "link")
    assert run([*arguments[:-1], arguments[-1] + end] if arguments[-1].endswith("link") else arguments) == 2
    assert "is a symbolic link" in capsys.readouterr().err.splitlines()[-1]
    assert not any((tmp_path / "elsewhere").iterdir())


def test_embed_leaves_a_foreign_partial_folder_alone(tmp_path: Path, tiny_bert_folder: Path, capsys: Captured) -> None:
    """All of these have names that a job would use."""
    (tmp_path / "texts.txt").write_text("the film\n")
    foreign = tmp_path / "out.npy.partial"
    for name, content in (("000000.npz", "mine"), ("regard.json", '{"name": "a web extension"}')):
        foreign.mkdir(exist_ok=True)
        (foreign / name).write_text(content)
        before = state(foreign)
        arguments = ["embed", tmp_path / "texts.txt", "-o", tmp_path / "out.npy", "-m", tiny_bert_folder]
        for more in ([], ["--restart"]):
            assert run([*map(str, arguments), *more]) == 2
            assert "out.npy.partial" in capsys.readouterr().err.splitlines()[-1]
            assert state(foreign) == before
