"""Every option that names a file to write refuses a foreign file and a link, and replaces files of Regard."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli.app import run
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.verbs import VERBS, find
from tests.inference.generation.folders import gpt_folder

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert_folder: Path) -> Path:
    """A folder with models and data, which a test runs in."""
    root = tmp_path_factory.mktemp("foreign")
    shutil.copytree(tiny_bert_folder, root / "bert")
    shutil.copytree(gpt_folder(root / "made", positions=64), root / "gpt")
    task, (encoder, tokenizer) = TextClassification(["bad", "good"]), regard.load(tiny_bert_folder)
    model = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), root / "classifier")
    (root / "texts.txt").write_text("a good film\nthe bad day\nhot water\n")
    (root / "rows.csv").write_text("text,label\na good film,good\nthe bad day,bad\nit was good,bad\n")
    return root


CLASSIFIER = ["classifier", "--data", "rows.csv"]
COMMANDS: dict[str, list[str]] = {
    "embed --output FILE.npy": ["embed", "texts.txt", "-m", "bert"],
    "predict --output FILE.csv": ["predict", "classifier", "texts.txt"],
    "predict --page FILE.html": ["predict", "classifier", "texts.txt"],
    "evaluate --report FILE.html": ["evaluate", *CLASSIFIER],
    "evaluate --errors FILE.csv": ["evaluate", *CLASSIFIER],
    "evaluate --output FILE.json": ["evaluate", *CLASSIFIER],
    "generate --trace FILE.json": ["generate", "the film", "-m", "gpt", "--max-new-tokens", "2"],
    "generate --trace FILE.html": ["generate", "the film", "-m", "gpt", "--max-new-tokens", "2"],
    "look --output FILE.html": ["look", "the film", "-m", "bert"],
    "look --output FILE.svg": ["look", "the film", "-m", "bert"],
    "look --output FILE.png": ["look", "the film", "-m", "bert"],
    "cluster --output FILE.csv": ["cluster", "texts.txt", "-m", "bert", "-n", "2"],
    "cluster --output FILE.jsonl": ["cluster", "texts.txt", "-m", "bert", "-n", "2"],
    "lesson six-words --output FILE.html": ["lesson", "six-words", "--epochs", "1"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_foreign_files_and_links_are_refused(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, page_built: None
) -> None:
    monkeypatch.chdir(folder)
    option, file = name.split()[-2:]
    path = tmp_path / file
    command = [*COMMANDS[name], option, str(path)]
    assert run(command) == 0
    first = path.read_bytes()
    assert run(command) == 0  # its own file
    assert len(path.read_bytes()) == len(first) or file.endswith((".html", ".json"))
    path.write_bytes(b"mine")
    assert run(command) == 2
    assert path.read_bytes() == b"mine"
    error = capsys.readouterr().err.splitlines()[-1]
    assert str(path) in error and "--force" in error
    assert run([*command, "--force"]) == 0
    assert path.read_bytes() != b"mine"
    path.unlink()
    (tmp_path / "system").write_bytes(b"precious")
    path.symlink_to(tmp_path / "system")
    for more in ([], ["--force"]):
        assert run([*command, *more]) == 2
        assert "is a symbolic link" in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "system").read_bytes() == b"precious"


def test_no_output_file_is_forgotten() -> None:
    """Every verb with a file to write has --force and takes part in the checks of outputs."""
    for verb in map(find, VERBS):
        paths = {
            name for name in verb.request.model_fields if name in ("report", "errors", "page", "trace", "alignments")
        }
        if verb.name in ("embed", "predict"):
            paths.add("output")
        assert paths <= set(verb.output_fields()), verb.name
        assert not paths or "force" in verb.request.model_fields, verb.name


def test_a_result_that_is_saved_in_python(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = regard.cluster(Path("texts.txt"), model="bert", num_clusters=2)
    for name in ("a.csv", "a.json"):
        path = tmp_path / name
        result.save(path)
        result.save(path)
        path.write_text("mine")
        with pytest.raises(regard.errors.InputError, match="--force"):
            result.save(path)
        assert path.read_text() == "mine"
        result.save(path, force=True)
        result.save(path)


def test_another_job_over_a_finished_output_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder)
    shutil.copytree("bert", tmp_path / "other")
    (tmp_path / "other" / "extra.json").write_text("{}")
    output = tmp_path / "out.npy"
    command = ["embed", "texts.txt", "--output", str(output), "-m"]
    assert run([*command, "bert"]) == 0
    before = output.read_bytes()
    for more in (["bert", "--layers", "0"], [str(tmp_path / "other")]):
        assert run([*command, *more]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "out.npy" in error and "--restart" in error
        assert output.read_bytes() == before
    assert run([*command, "bert", "--layers", "0", "--restart"]) == 0
    assert not np.array_equal(np.load(output), np.load(io.BytesIO(before)))


INSIDE: dict[str, list[str]] = {
    "embed, a file": ["embed", "in", "-m", "bert", "-o", "in/out.npy"],
    "embed, parts": ["embed", "in", "-m", "bert", "-o", "in/parts"],
    "embed, a glob": ["embed", "in/*.txt", "-m", "bert", "-o", "in/out.txt"],
    "predict": ["predict", "classifier", "in", "-o", "in/below/out.csv"],
    "predict, a page": ["predict", "classifier", "in", "--page", "in/out.html"],
    "index": ["index", "in", "-m", "bert", "-o", "in/index"],
    "perplexity": ["perplexity", "in", "-m", "gpt", "-o", "in/out.json"],
    "corpus build": ["corpus", "build", "in", "-o", "in/corpus"],
    "pretrain": ["pretrain", "bert", "--corpus", "in", "-o", "in/run"],
    "train classify": ["train", "classify", "-m", "bert", "--train", "in", "-o", "in/run"],
}


def test_an_output_never_replaces_the_input(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_bytes(content := (folder / "rows.csv").read_bytes())
    Path("link.csv").symlink_to("rows.csv")
    command = ["predict", str(folder / "classifier"), "--columns", "text", "--force", "-o", "rows.csv"]
    for name in ("rows.csv", "./rows.csv", "link.csv"):
        assert run([*command, name]) == 2
        assert "rows.csv is the input" in capsys.readouterr().err.splitlines()[-1]
    assert Path("rows.csv").read_bytes() == content


@pytest.mark.parametrize("name", INSIDE)
def test_an_output_inside_the_input_is_refused_at_the_first_run(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder)
    shutil.rmtree("in", ignore_errors=True)
    (folder / "in" / "below").mkdir(parents=True)
    (folder / "in" / "texts.txt").write_text("a good film\n")
    if name == "index":
        with pytest.raises(regard.errors.InputError, match="the next run would read it"):
            regard.index(Path("in"), "in/index", model="bert")
    assert run(INSIDE[name]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "the next run would read it" in error
    assert sorted(str(path.relative_to("in")) for path in Path("in").rglob("*")) == ["below", "texts.txt"]
