"""Outputs that are folders of Parquet parts: their rows, resuming, damage, and object stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import regard
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.bulk import parts
from regard.inference.embedding.engine import EmbeddingEngine
from regard.tasks.fine_tuned_model import save_fine_tuned
from tests.inference.measure import embed_file
from tests.object_store import ObjectStore
from tests.tasks.prediction.models import TASKS, random_model

TEXTS = [f"the film was {'so ' * (number % 7)}long" for number in range(40)]
TEXTS[9] = ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def options(tiny_bert_folder: Path) -> dict[str, Any]:
    return {"model": tiny_bert_folder, "shard_size": 8, "max_length": 8, "device": "cpu"}


@pytest.fixture
def no_forward_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(EmbeddingEngine, "embed_steps", lambda *_: pytest.fail("a forward pass"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_parts_hold_the_rows_of_one_file(file: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    result = embed_file(file, tmp_path / "parts", **options)
    alone = embed_file(file, tmp_path / "one.parquet", **options)
    assert (result.rows, result.cut, result.missing) == (alone.rows, alone.cut, alone.missing) == (40, 22, 1)
    assert pq.read_table(tmp_path / "parts").to_pydict() == pq.read_table(alone.output).to_pydict()
    assert sorted(content(tmp_path / "parts")) == ["_regard.json", *(f"part-00000{n}.parquet" for n in range(5))]
    assert not (tmp_path / "parts.partial").exists()


def test_several_processes_write_the_same_parts(file: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    embed_file(file, tmp_path / "one", **options)
    embed_file(file, tmp_path / "two", devices=["cpu", "cpu"], **options)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_same_command_computes_what_is_missing_and_then_nothing(
    file: Path, tmp_path: Path, options: dict[str, Any], no_forward_pass: Callable[[], None]
) -> None:
    output = tmp_path / "parts"
    embed_file(file, output, **options)
    expected = content(output)
    (output / "part-000003.parquet").unlink()
    damaged = bytearray(expected["part-000001.parquet"])
    damaged[200] ^= 1  # a bit of the vectors
    (output / "part-000001.parquet").write_bytes(damaged)
    shutil.copy(output / "part-000000.parquet", output / "part-000004.parquet")
    (output / "part-000004.parquet").write_bytes(expected["part-000000.parquet"][:-9])
    problems: list[str] = []
    result = embed_file(file, output, on_damaged=problems.append, **options)
    assert (result.resumed, result.cut) == (16, 22)
    assert len(problems) == 2 and all("computed again" in problem for problem in problems)
    assert content(output) == expected
    no_forward_pass()
    again = embed_file(file, output, **options)
    assert again.already_done and (again.cut, again.resumed) == (22, 40)


def test_other_work_is_not_mixed(file: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    output = tmp_path / "parts"
    embed_file(file, output, **options)
    before = content(output)
    with pytest.raises(InputError, match=r"parts holds another .*max_length was 8 and is 9.*--restart"):
        embed_file(file, output, **{**options, "max_length": 9})
    assert content(output) == before
    assert embed_file(file, output, restart=True, **{**options, "max_length": 9}).resumed == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"mine is not empty: it holds 'notes.txt'"):
        embed_file(file, tmp_path / "mine", **options)
    with pytest.raises(InputError, match=r"texts\.d/x: cannot be written: there is no folder"):
        embed_file(file, tmp_path / "texts.d" / "x", **options)


def test_predictions_in_parts(tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder, source = tmp_path / "model", tmp_path / "in.jsonl"
    save_fine_tuned(random_model(TASKS["classify"], tiny_bert_folder), folder)
    source.write_text("".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(TEXTS)))
    for name in ("parts", "one.parquet"):
        result = regard.predict(folder, source, output=tmp_path / name, keep=["id"], shard_size=7)
        assert (result.rows, result.blank) == (40, 1)
    assert pq.read_table(tmp_path / "parts").to_pydict() == pq.read_table(tmp_path / "one.parquet").to_pydict()


def test_an_object_store_holds_input_and_output(
    object_store: ObjectStore,
    tmp_path: Path,
    options: dict[str, Any],
    no_forward_pass: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    halves = {"in/a.txt": TEXTS[:20], "in/b.txt": TEXTS[20:]}
    object_store.put({name: "\n".join(texts).encode() for name, texts in halves.items()})
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    source, output = f"{object_store.address}/in/*.txt", f"{object_store.address}/out"
    result = embed_file(source, output, **options)
    assert (result.output, result.rows, result.missing) == (output, 40, 1)
    one = embed_file(tmp_path / "texts.txt", tmp_path / "one.npy", **options)
    with pq.ParquetFile(parts.storage.open_input(f"{output}/part-000001.parquet")) as part:
        found = np.stack([np.zeros(32) if row is None else row for row in part.read()["vector"].to_pylist()])
    np.testing.assert_array_equal(found.astype(np.float32), np.load(one.output)[8:16])
    parts.storage.remove(f"{output}/part-000002.parquet")
    assert embed_file(source, output, **options).resumed == 32
    no_forward_pass()
    assert embed_file(source, output, **options).already_done
    arguments = ["--model", str(options["model"]), "--device", "cpu"]
    assert run(["embed", source, "--output", "s3://no-such-bucket/out", *arguments]) == 2
    assert "there is no bucket 'no-such-bucket'" in capsys.readouterr().err
    assert run(["embed", f"{object_store.address}/absent.txt", "--output", output, *arguments]) == 2
    assert "there is no file" in capsys.readouterr().err
