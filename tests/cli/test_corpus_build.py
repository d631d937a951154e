"""`regard corpus build`: the bytes of `regard pretrain`, resuming, messages and one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.cli.app import run
from regard.data.corpus import Corpus
from tests.object_store import ObjectStore
from tests.training.recipes.pretraining.runs import SMALL, command, events, story

Captured = pytest.CaptureFixture[str]
VOCABULARY = [
    word
    for key in ("vocabulary.vocab_size", "model.max_position_embeddings", "data.max_length")
    if key in SMALL
    for word in ("--set", f"{key}={SMALL[key]}")
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command, with texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(story())
    (tmp_path / "texts").mkdir()
    documents = story().split("\n\n")
    for number in range(4):
        (tmp_path / "texts" / f"{number}.txt").write_text("\n\n".join(documents[number * 30 : (number + 1) * 30]))
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def token_files(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(folder).items() if name.startswith(("shard", "tokenizer"))}


@pytest.mark.long
def test_the_corpus_is_that_of_pretraining(folder: Path, capsys: Captured) -> None:
    assert run(["corpus", "build", "story.txt", "-o", "built", *VOCABULARY]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("built: 120 documents, ") and "in 1 shard, a vocabulary of" in out
    assert "training a wordpiece vocabulary" in error
    assert run(command(Path("story.txt"), Path("run"), schedule_max_steps=3)) == 0
    assert token_files(Path("built")) == token_files(Path("run/corpus"))
    assert run(command(Path("built"), Path("from-built"), schedule_max_steps=3)) == 0
    assert not Path("from-built/corpus").exists()
    losses = [[event["loss"] for event in events(Path(name), "step")] for name in ("run", "from-built")]
    assert losses[0] == losses[1] and losses[0]
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("run", "from-built")]
    assert weights[0] == weights[1]


def test_the_same_command_again_does_nothing(folder: Path, capsys: Captured) -> None:
    arguments = ["corpus", "build", "texts", "-o", "built", "--shard-size", "2kb", "--workers", "2", *VOCABULARY]
    assert run(arguments) == 0
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in Path("built").rglob("*") if path.is_file()}
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["documents"] == 120 and document["shards"] > 5 and document["uploaded"] is None
    after = {path: path.stat().st_mtime_ns for path in Path("built").rglob("*") if path.is_file()}
    assert after == before
    (folder / "texts" / "0.txt").write_text("Another text.\n")
    assert run(arguments) == 2
    assert "Choose another --output, or delete that corpus with --restart" in capsys.readouterr().err
    assert run([*arguments, "--restart"]) == 0


def test_a_glob_and_its_copy_in_a_bucket_give_the_same_tokens(object_store: ObjectStore, folder: Path) -> None:
    object_store.put({path.name: path.read_bytes() for path in (folder / "texts").iterdir()})
    for name, source in (("local", "texts/[0-2].txt"), ("remote", f"{object_store.address}/[0-2].txt")):
        assert run(["corpus", "build", source, "-o", name, "--shard-size", "2kb", *VOCABULARY]) == 0
    assert token_files(Path("local")) == token_files(Path("remote"))
    assert len(Corpus.open("local")) == 90


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "there is no file none.txt"),
        (["s3://b/x"], "is not an address of Amazon S3"),
        (["*.csv"], "no file matches *.csv"),
        (["story.txt", "--tokenizer", "none"], "none"),
        (["story.txt", "--shard-size", "0"], "'0' is not a size"),
        (["story.txt", "--family", "bret"], "did you mean 'bert'"),
        (["story.txt", "--workers", "0"], "workers"),
        (["story.txt", "--upload", "elsewhere"], "elsewhere is not a folder on an object store"),
        (["story.txt", "--vocab-size", "9000", "--set", "vocabulary.exact=true"], "--set vocabulary.vocab_size="),
        (["story.txt", "--set", "vocabulary.size=10"], "vocabulary.size"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: Captured) -> None:
    assert run(["corpus", "build", *arguments, "-o", "built"]) == 2
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1] and "Traceback" not in error
    assert not Path("built").exists()


def test_an_address_for_the_output_is_refused(capsys: Captured) -> None:
    assert run(["corpus", "build", "story.txt", "-o", "s3://bucket/corpus"]) == 2
    assert "--upload s3://bucket/corpus copies the finished corpus" in capsys.readouterr().err


def test_foreign_files_are_not_touched(folder: Path, capsys: Captured) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("mine")
    assert run(["corpus", "build", "story.txt", "-o", "mine"]) == 2
    assert "mine is not empty: it holds 'notes.txt'" in capsys.readouterr().err
    assert files(folder / "mine") == {"notes.txt": b"mine"}


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_says_how_to_continue(folder: Path, workers: str, default_sigint: None) -> None:
    (folder / "long.txt").write_text(story(3_000))
    assert run(["corpus", "build", "long.txt", "-o", "whole", "--shard-size", "5kb", *VOCABULARY]) == 0
    line = ["corpus", "build", "long.txt", "-o", "built", "--shard-size", "5kb", "--workers", workers, *VOCABULARY]
    process = subprocess.Popen([sys.executable, "-m", "regard", *line], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not (folder / "built" / "shard-000001").is_dir():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    error = process.communicate(timeout=200)[1]
    assert process.returncode == 130, error
    assert "the finished shards are kept in built: the same command continues" in error and "Traceback" not in error
    assert run(line) == 0
    assert token_files(folder / "built") == token_files(folder / "whole")
