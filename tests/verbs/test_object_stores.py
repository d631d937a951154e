"""Verbs read rows from an object store as from the disk: the same results, byte for byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli.app import run
from tests.object_store import ObjectStore

TEXTS = ("a good film", "a bad film", "water", "", "how many people know", "the sound of the day", "no")
LABELED = "text\tlabel\n" + "".join(
    f"a {word} film {number}\t{label}\n"
    for number, (word, label) in enumerate([("good", "1"), ("bad", "0"), ("funny", "1"), ("dull", "0")] * 4)
)


def files() -> dict[str, bytes]:
    lines = [f"{text}\n".encode() for text in TEXTS]
    return {"texts/1.txt": b"".join(lines[:3]), "texts/2.txt.gz": gzip.compress(b"".join(lines[3:]))}


def test_embed_from_a_bucket(object_store: ObjectStore, tiny_bert_folder: Path, tmp_path: Path) -> None:
    object_store.put(files())
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    for name in ("folder", "glob", "file"):
        source = {"folder": f"{object_store.address}/texts", "glob": f"{object_store.address}/texts/*.txt*"}.get(
            name, str(tmp_path / "texts.txt")
        )
        output = tmp_path / f"{name}.npy"
        assert run(["embed", source, "--model", str(tiny_bert_folder), "--output", str(output)]) == 0
    expected = np.load(tmp_path / "file.npy")
    assert expected.shape == (7, 32) and np.any(expected)
    for name in ("folder", "glob"):
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), expected)


def test_train_evaluate_and_predict_from_a_bucket(
    object_store: ObjectStore, tiny_bert_folder: Path, tmp_path: Path
) -> None:
    object_store.put({"train/a.tsv": LABELED.encode(), "train/b.tsv": LABELED.encode()} | files())
    (tmp_path / "all.tsv").write_text(LABELED + LABELED.partition("\n")[2])
    common = ["--model", str(tiny_bert_folder), "--epochs", "1", "--device", "cpu"]
    for name, data in (("local", str(tmp_path / "all.tsv")), ("remote", f"{object_store.address}/train")):
        arguments = ["train", "classify", "--train", data, "--dev", data, "--output", str(tmp_path / name)]
        assert run([*arguments, *common]) == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "remote")]
    assert weights[0] == weights[1]
    remote = regard.evaluate(tmp_path / "local", data=f"{object_store.address}/train/*.tsv")
    local = regard.evaluate(tmp_path / "local", data=tmp_path / "all.tsv")
    assert remote.metrics == local.metrics
    predicted = regard.predict(tmp_path / "local", Path(f"{object_store.address}/texts"))
    assert [prediction["label"] is None for prediction in predicted.predictions] == [not text for text in TEXTS]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://no-such-bucket/texts", "there is no bucket 'no-such-bucket'"),
        ("{0}/none.txt", "there is no file or folder s3://"),
        ("{0}/texts/*.csv", "no file matches s3://"),
    ],
)
def test_one_line_and_exit_code_2(
    object_store: ObjectStore, tiny_bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    address: str, message: str,
) -> None:  # fmt: skip
    object_store.put(files())
    output = tmp_path / "v.npy"
    source = address.format(object_store.address)
    assert run(["embed", source, "--model", str(tiny_bert_folder), "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not output.exists()
