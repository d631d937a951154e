"""`regard embed`: files, columns, pipes, signals, messages and the JSON document."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard import Embedder
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.bulk.shards import ShardFolder
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from tests.heartbeat import without_heartbeat

TEXTS = ["the film was funny", "so dull", "they love it"]
Captured = pytest.CaptureFixture[str]
Vectors = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture
def call(tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `regard embed` in this process, in a folder of its own, with the tiny model."""
    monkeypatch.chdir(tmp_path)

    def regard_embed(source: object, *options: object, output: str = "out.npy") -> int:
        arguments = ["embed", source, "--model", tiny_bert_folder, "--output", output, *options]
        return run([str(argument) for argument in arguments])

    return regard_embed


@pytest.fixture
def expected(tiny_bert_folder: Path) -> Vectors:
    found: Vectors = Embedder(tiny_bert_folder).transform(TEXTS)
    return found


def equal(found: Vectors, expected: Vectors) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-6)


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("in.txt", lines(*TEXTS), []),
        ("in.txt.gz", gzip.compress(lines(*TEXTS)), []),
        ("in.txt.xz", lzma.compress(lines(*TEXTS)), []),
        ("in.txt.bz2", bz2.compress(lines(*TEXTS)), []),
        ("in.tsv", lines(*(f"{n}\t{text}" for n, text in enumerate(TEXTS))), ["--columns", "1"]),
        ("in.tsv", lines("id\tsentence", *(f"{n}\t{text}" for n, text in enumerate(TEXTS))), ["--columns", "sentence"]),
        ("in.csv", lines("sentence,id", *(f'"{text}",1' for text in TEXTS)), ["--columns", "sentence"]),
        ("in.jsonl", lines(*(json.dumps({"text": text, "id": 1}) for text in TEXTS)), ["--columns", "text"]),
        ("in.jsonl.gz", gzip.compress(lines(*(json.dumps({"t": text}) for text in TEXTS))), ["--columns", "t"]),
    ],
    ids=["txt", "gz", "xz", "bz2", "tsv", "tsv-header", "csv", "jsonl", "jsonl-gz"],
)
def test_inputs(
    name: str, content: bytes, options: list[str], call: Callable[..., int], expected: Vectors, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert call(name, *options) == 0
    equal(np.load(tmp_path / "out.npy"), expected)


def test_standard_input(
    call: Callable[..., int], expected: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines(*TEXTS))))
    assert call("-") == 0
    equal(np.load(tmp_path / "out.npy"), expected)
    assert "standard input is read once" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["out.npy", "out.npy.regard.json"]


def test_the_json_document(call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_bytes(lines(*TEXTS, "", "film " * 200))
    assert call("in.txt", "--json", "--layers", "-2", "--pooling", "cls") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document.pop("seconds") > 0
    assert document.pop("texts_per_second") > 0
    for note in document.pop("notes"):
        assert note in captured.err
    assert document == {
        "output": "out.npy",
        "rows": 5,
        "width": 32,
        "model": str(tiny_bert_folder),
        "layers": "-2",
        "pooling": "cls",
        "prompt": "",
        "cut": 1,
        "windowed": 0,
        "missing": 1,
        "resumed": 0,
        "kind": "dense",
    }
    assert "1 of 5 texts had more than 128 tokens and were cut" in captured.err
    assert "1 row without a text gets no answer: in.txt line 4" in captured.err


def test_repeating_a_finished_run_computes_nothing(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_bytes(lines(*TEXTS, "", "film " * 200))
    documents = []
    for _ in range(2):
        assert call("in.txt", "--json") == 0
        captured = capsys.readouterr()
        documents.append(json.loads(captured.out))
    first, second = ({**one, "seconds": 0, "texts_per_second": 0} for one in documents)
    assert [note for note in second.pop("notes") if "nothing was embedded" not in note] == first.pop("notes")
    assert second == {**first, "resumed": 5} and first["resumed"] == 0
    assert "out.npy" in captured.err and "--restart" in captured.err
    assert call("in.txt", "--json", "--restart") == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 0


def test_the_plain_report(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_bytes(lines(*TEXTS, " ", "film " * 200))
    assert call("in.txt", "--missing", "skip", "--long", "windows", "--normalize", output="out.parquet") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("out.parquet: 4 texts, 32 wide") and captured.out.endswith(" mean\n")
    assert "1 row without a text was skipped" in captured.err
    assert "1 of 4 texts had more than 128 tokens and were embedded in windows" in captured.err
    assert "embedding: 4 texts in" in captured.err
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["line"].to_pylist() == [1, 2, 3, 5]
    np.testing.assert_allclose(np.linalg.norm(table["vector"].to_pylist(), axis=1), 1, atol=1e-5)


def test_a_line_of_a_megabyte_is_truncated(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_bytes(lines("dull", "long film " * 100_000))
    assert call("in.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cut"] == 1
    assert np.load(tmp_path / "out.npy").shape == (2, 32)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", [], "in.txt is empty: expected at least one row"),
        (
            lines("a", "", "b"),
            ["--missing", "error"],
            "in.txt line 2 has no text (text); fix it",
        ),
        (b"good\nb\xe9d\n", [], "in.txt line 2: byte 2 of the line, 0xe9, is not UTF-8"),
        (lines("a", "film " * 200), ["--long", "error"], "in.txt line 2 "),
        (lines("a"), ["--layers", "last"], "unknown layer expression 'last'"),
        (lines("a"), ["--layers", "7"], "layers 0 to 2"),
        (lines("a"), ["--pooling", "avg"], "'avg' is not one of"),
        (lines("a", "b"), ["--columns", "x"], "no column 'x'"),
        (lines("a"), ["--model", "no/such/folder"], "no such folder"),
        (lines("a"), ["--model", "regard-brt"], "no built-in model 'regard-brt': did you mean 'regard-bert'"),
        (lines("a"), ["--output", "absent/out.npy"], "there is no folder absent; create it first"),
        (lines("a"), ["--output", "out.nyp"], "did you mean '.np"),
        (lines("a"), ["--pooling", "none"], "use .npz or .parquet"),
        (lines("a"), ["--max-length", "1000"], "only 128 positions"),
        (None, [], "there is no file in.txt"),
    ],
)
def test_invalid_input_is_a_one_line_error_and_leaves_no_files(
    content: bytes | None,
    options: list[str],
    message: str,
    call: Callable[..., int],
    tmp_path: Path,
    capsys: Captured,
) -> None:
    if content is not None:
        (tmp_path / "in.txt").write_bytes(content)
    assert call("in.txt", *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"in.txt"}


# Prints a line when it starts a shard, so that the test can send a signal while it works.
TELLING = """
import sys, time
from regard.cli.app import run
from regard.inference.bulk.shards import ShardFolder

finish = ShardFolder.finish

def telling(self, number):
    finish(self, number)
    print(number, flush=True)
    if number == 40:  # however late the signal comes, the job has not ended
        time.sleep(200)

ShardFolder.finish = telling
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGKILL, -9, ""),
        (signal.SIGINT, 130, "the finished part is kept in out.npy.partial: the same command continues\ninterrupted\n"),
    ],
    ids=["SIGKILL", "SIGINT"],
)
@pytest.mark.usefixtures("default_sigint")
def test_an_interrupted_run_continues_after_the_finished_shards(
    number: signal.Signals,
    code: int,
    message: str,
    call: Callable[..., int],
    tiny_bert_folder: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"the film was {'so ' * (n % 9)}long, {n}" for n in range(600)]
    (tmp_path / "in.txt").write_bytes(lines(*texts))
    arguments = ["embed", "in.txt", "--model", str(tiny_bert_folder), "--output", "out.npy", "--shard-size", "10"]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for shard in range(4):
        assert process.stdout.readline() == f"{shard}\n"
    process.send_signal(number)
    _, error = process.communicate(timeout=200)
    assert (process.returncode, without_heartbeat(error)) == (code, message)
    assert not (tmp_path / "out.npy").exists()

    partial = tmp_path / "out.npy.partial"
    finished_shards = {int(path.stem) for path in partial.glob("[0-9]*.npz")}
    assert 4 <= len(finished_shards) <= 41
    assert call("in.txt", "--shard-size", "10", "--layers", "-2") == 2
    assert "layers was '-1' and is '-2'" in capsys.readouterr().err
    written: list[int] = []
    finish = ShardFolder.finish
    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "finish", lambda self, n: (written.append(n), finish(self, n)))
        assert call("in.txt", "--shard-size", "10", "--json") == 0
    assert written == sorted(set(range(60)) - finished_shards)
    captured = capsys.readouterr()
    assert json.loads(captured.out)["resumed"] == 10 * len(finished_shards)
    assert f"continuing behind {10 * len(finished_shards):,} of 600 texts" in captured.err
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.npy", "out.npy.regard.json"]
    continued = np.load(tmp_path / "out.npy")
    assert call("in.txt", output="undisturbed.npy") == 0
    equal(continued, np.load(tmp_path / "undisturbed.npy"))


@pytest.mark.usefixtures("default_sigint")
def test_an_interrupted_run_on_a_pipe_leaves_no_files_and_prints_a_message(
    call: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def interrupt(self: ShardFolder, number: int, block: Any) -> None:
        if number == 2:
            signal.raise_signal(signal.SIGINT)
        add(self, number, block)

    add = ShardFolder.add
    monkeypatch.setattr(ShardFolder, "add", interrupt)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines(*TEXTS))))
    assert call("-", "--shard-size", "1") == 130
    assert "standard input cannot be continued: nothing is kept" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_two_runs_cannot_write_one_output(call: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    record = {"format": 1, "continuable": True, "input": "", "model": "", "settings": {}}
    (tmp_path / "in.txt").write_bytes(lines(*TEXTS))
    with ShardFolder(tmp_path / "out.npy", record).locked():
        assert call("in.txt") == 2
    assert f"out.npy.partial is in use by process {os.getpid()}, which writes to it" in capsys.readouterr().err


@pytest.mark.long
def test_a_real_model_equals_sentence_transformers(
    minilm_folder: Path, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """all-MiniLM-L6-v2 on 500 sentences, through the library and through the program."""
    from sentence_transformers import SentenceTransformer

    with shared_data("sst2/train.tsv").open(encoding="utf-8") as file:
        rows = [next(file) for _ in range(500)]
    (tmp_path / "in.tsv").write_text("".join(rows), encoding="utf-8")
    sentences = [row.split("\t")[0] for row in rows]
    expected = SentenceTransformer(str(minilm_folder), device="cpu").encode(sentences, normalize_embeddings=True)
    vectors = Embedder(minilm_folder, normalize=True, device="cpu").transform(sentences)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    options = ["--model", minilm_folder, "--normalize", "--columns", "0", "--output", tmp_path / "out.npy"]
    command = [sys.executable, "-m", "regard", "embed", tmp_path / "in.tsv", *options, "--device", "cpu"]
    subprocess.run(command, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


@pytest.mark.long
def test_all_mpnet_base_v2_equals_sentence_transformers(
    mpnet_folder: Path, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """By its name, from its packages, through the program; the command reads its pooling and normalization."""
    from sentence_transformers import SentenceTransformer

    with shared_data("sst2/train.tsv").open(encoding="utf-8") as file:
        sentences = [*(next(file).split("\t")[0] for _ in range(6)), "Ein Satz mit Umlauten: äöü."]
    (tmp_path / "in.txt").write_text("\n".join(sentences), encoding="utf-8")
    expected = SentenceTransformer(str(mpnet_folder), device="cpu").encode(sentences)
    options = ["--model", "all-mpnet-base-v2", "--output", str(tmp_path / "out.npy"), "--device", "cpu"]
    assert run(["embed", str(tmp_path / "in.txt"), *options]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


MESSY = '\ufeffid;Rezension;Wertung\r\n1;"gut; sehr\r\n""gut"" 😀";5\r\n2;;1\r\n\r\n3;nicht übel, ja;4\r\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_messy_table(encoding: str, call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path) -> None:
    text = MESSY if encoding == "utf-8" else MESSY.removeprefix("\ufeff")
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    options = ["--columns", "Rezension", "--encoding", encoding]
    assert call("in.csv.gz", *options, output="out.parquet") == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["line"].to_pylist() == [2, 4, 5, 6]
    vectors = table["vector"].to_pylist()
    assert (vectors[1], vectors[2]) == (None, None)
    expected = Embedder(tiny_bert_folder).transform(['gut; sehr\n"gut" 😀', "nicht übel, ja"])
    equal(np.array([vectors[0], vectors[3]], dtype=np.float32), expected)


def test_data_frames(tiny_bert_folder: Path, expected: Vectors) -> None:
    frame = pd.DataFrame({"id": range(4), "review": [*TEXTS, None]})
    found = regard.embed(frame, model=str(tiny_bert_folder))
    equal(found.vectors[:3], expected)
    assert (found.missing, found.to_dict()["vectors"][3]) == (1, None)
    assert found._reproduce["python"] == f"import regard\n\nregard.embed(frame, model={str(tiny_bert_folder)!r})"
    equal(regard.embed(frame["review"][:3], model=str(tiny_bert_folder)).vectors, expected)
    equal(regard.embed(np.array(TEXTS), model=str(tiny_bert_folder)).vectors, expected)
    with pytest.raises(InputError, match="cannot tell which columns hold the text"):
        rows = [f"some words of text number {number}" for number in range(4)]
        regard.embed(pd.DataFrame({"a": rows, "b": rows}), model=str(tiny_bert_folder))


@pytest.mark.parametrize("published", [False, True])
def test_a_task_head_that_is_left_out_is_said_once(
    call: Callable[..., int], tiny_bert_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], published: bool
) -> None:
    """A folder of `regard train`, and one of transformers with a classifier."""
    folder = tmp_path / "classifier"
    if published:
        shutil.copytree(tiny_bert_folder, folder)
        config = json.loads((folder / "config.json").read_bytes())
        (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
        weights = load_file(folder / "model.safetensors")
        head = {"classifier.weight": torch.zeros(2, 32), "classifier.bias": torch.zeros(2)}
        save_file({**weights, **head}, folder / "model.safetensors")
        (folder / "checksums.json").unlink()
    else:
        task = TextClassification(["bad", "good"])
        encoder, tokenizer = regard.load(tiny_bert_folder)
        model = EncoderWithHead.from_encoder(encoder, task).eval()
        save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), folder)
    Path("in.txt").write_bytes(lines(*TEXTS))
    capfd.readouterr()
    assert call("in.txt", "--json", "--model", folder) == 0
    printed = capfd.readouterr()
    (note,) = json.loads(printed.out)["notes"]
    assert "without the task head" in note
    assert "classify" in note
    assert sum("classifier" in line for line in printed.err.splitlines()) == 1
    with pytest.warns(UserWarning) as warned:  # in Python as well
        regard.embed(TEXTS, model=str(folder))
    assert sum("task head" in str(w.message) or "classifier" in str(w.message) for w in warned) == 1
    assert call("in.txt", "--json", "--restart") == 0
    assert json.loads(capfd.readouterr().out)["notes"] == []
