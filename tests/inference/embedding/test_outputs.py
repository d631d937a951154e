"""The three output formats: content, atomic writes, and validation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import InputError, RegardError
from regard.files.output_file import replace_output
from regard.inference.bulk.parts import check_output
from regard.inference.bulk.shards import Block, pack_json, read_blocks, unpack_json, write_blocks
from regard.inference.embedding import bulk as outputs

VECTORS = np.arange(15, dtype=np.float32).reshape(5, 3)
POOLED = [
    {"lines": np.array([1, 2]), "missing": np.array([False, False]), "vectors": VECTORS[:2]},
    {"lines": np.array([4]), "missing": np.array([False]), "vectors": VECTORS[2:3]},
]
# The second text is blank, so it has no tokens.
TOKENS = [
    {
        "lines": np.array([1, 2]),
        "missing": np.array([False, True]),
        "lengths": np.array([2, 0]),
        "vectors": VECTORS[:2],
        "offsets": np.array([[0, 2], [2, 3]]),
        "words": np.array([0, 0]),
        "tokens": pack_json(["h\u00e9", "##\ud800"]),
    },
    {
        "lines": np.array([4]),
        "missing": np.array([False]),
        "lengths": np.array([3]),
        "vectors": VECTORS[2:],
        "offsets": np.array([[0, 0], [0, 1], [0, 0]]),
        "words": np.array([-1, 0, -1]),
        "tokens": pack_json(["[CLS]", "a\0", "[SEP]"]),
    },
]


def write(path: Path, blocks: list[Block], *, rows: int = 3) -> None:
    def read(*columns: str) -> Iterator[Block]:
        return ({name: block[name] for name in columns} for block in blocks)

    outputs.WriteVectors(3, "lengths" in blocks[0])(path, read, rows)


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    write(path, POOLED)
    found = np.load(path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VECTORS[:3])


def test_npz_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    write(path, POOLED)
    with np.load(path) as found:
        assert set(found) == {"lines", "vectors"}
        assert list(found["lines"]) == [1, 2, 4]
        np.testing.assert_array_equal(found["vectors"], VECTORS[:3])


def test_npz_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    write(path, TOKENS)
    with np.load(path) as found:
        assert set(found) == {"lines", "vectors", "starts", "offsets", "words"}
        assert list(found["starts"]) == [0, 2, 2, 5]
        assert found["offsets"].tolist() == [[0, 2], [2, 3], [0, 0], [0, 1], [0, 0]]
        assert list(found["words"]) == [0, 0, -1, 0, -1]
        np.testing.assert_array_equal(found["vectors"], VECTORS)


def test_parquet_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write(path, POOLED)
    found = pq.read_table(path)
    assert found.schema.names == ["line", "vector"]
    assert found.schema.field("vector").type == pa.list_(pa.float32(), 3)
    assert found["line"].to_pylist() == [1, 2, 4]
    assert found["vector"].to_pylist() == VECTORS[:3].tolist()
    assert pq.ParquetFile(path).num_row_groups == 2


def test_parquet_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    blocks = [{**TOKENS[0], "tokens": pack_json(["h\u00e9", "##x"])}, TOKENS[1]]
    write(path, blocks)
    found = pq.read_table(path)
    assert found.schema.field("vectors").type == pa.list_(pa.list_(pa.float32(), 3))
    assert found.to_pydict() == {
        "line": [1, 2, 4],
        "tokens": [["h\u00e9", "##x"], [], ["[CLS]", "a\0", "[SEP]"]],
        "starts": [[0, 2], [], [0, 0, 0]],
        "ends": [[2, 3], [], [0, 1, 0]],
        "words": [[0, 0], [], [-1, 0, -1]],
        "vectors": [VECTORS[:2].tolist(), [], VECTORS[2:].tolist()],
    }


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.parquet"])
def test_the_same_blocks_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    for path in (tmp_path / name, tmp_path / "again" / name):
        write(path, POOLED)
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.parquet"])
def test_missing_rows_are_detected_and_the_old_file_is_preserved(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"old")
    with (
        pytest.raises(RegardError, match="hold 3 rows where 4 were expected"),
        replace_output(tmp_path / name, force=True) as path,
    ):
        write(path, POOLED, rows=4)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old"}


def test_shards_are_read_block_by_block_and_column_by_column(tmp_path: Path) -> None:
    path = tmp_path / "shard.npz"
    writing = write_blocks(path)
    next(writing)
    for block in TOKENS:
        writing.send(block)
    with suppress(StopIteration):
        writing.send(None)
    found = list(read_blocks(path, "words", "tokens"))
    assert [set(block) for block in found] == [{"words", "tokens"}] * 2
    assert [unpack_json(block["tokens"]) for block in found] == [["h\u00e9", "##\ud800"], ["[CLS]", "a\0", "[SEP]"]]
    np.testing.assert_array_equal(found[1]["words"], TOKENS[1]["words"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("taken", "is a file, expected a folder for Parquet parts"),
        ("absent/out", "there is no folder .*absent; create it first"),
        ("out.nyp", "'.nyp' is none; did you mean '.np"),
        ("absent/out.npy", "there is no folder .*absent; create it first"),
        ("folder.npy", "not a regular file"),
    ],
)
def test_invalid_outputs(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=message):
        check_output(tmp_path / name, outputs.SUFFIXES)


def test_token_vectors_need_a_suitable_format(tmp_path: Path) -> None:
    outputs.check_pooling(tmp_path / "out.npz", "none")
    with pytest.raises(InputError, match=r"use \.npz or \.parquet"):
        outputs.check_pooling(tmp_path / "out.npy", "none")


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_output(tmp_path / "out.npy", outputs.SUFFIXES)
    with pytest.raises(InputError, match=r"pip install 'regard\[data\]'"):
        check_output(tmp_path / "out.parquet", outputs.SUFFIXES)
