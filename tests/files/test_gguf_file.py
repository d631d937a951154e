"""GGUF files: what is read, and hostile files that are refused before they cost memory or time."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from regard.errors import InputError
from regard.files.gguf_file import TENSOR_TYPES, find_gguf, read_gguf
from tests.checkpoints.gguf_files import write_gguf

METADATA = {
    ".block_count": 2,
    ".epsilon": 1e-5,
    "flag": True,
    "text": "é",
    "tokens": ["a", "", "ï"],
    "scores": [0.5, -1.0],
}
TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, dtype=np.float32)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", "test", METADATA, TENSORS)


def header(*, version: int = 3, tensors: int = 0, entries: int = 0, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(*, name: bytes = b"a", dimensions: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<{len(dimensions)}Q", *dimensions)
    return text(name) + struct.pack("<I", len(dimensions)) + shape + struct.pack("<IQ", kind, offset)


def test_metadata_and_tensors(file: Path) -> None:
    read = read_gguf(file)
    assert read.architecture == "test"
    assert read.metadata["test.block_count"] == 2
    assert read.metadata["test.epsilon"] == 1e-5, "the shortest decimal number of the float32"
    assert read.metadata["flag"] is True and read.metadata["text"] == "é"
    assert read.metadata["tokens"] == ["a", "", "ï"] and read.metadata["scores"].tolist() == [0.5, -1.0]
    assert read.tensors["a"].shape == (2, 3)
    assert read.bytes_of("a").view(np.float32).reshape(2, 3).tolist() == TENSORS["a"].tolist()


def test_types_of_tensors_are_those_of_the_library() -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    for number, (name, block, size) in TENSOR_TYPES.items():
        assert GGMLQuantizationType(number).name == name
        assert GGML_QUANT_SIZES[GGMLQuantizationType(number)] == (block, size)


def test_every_truncation_is_refused(file: Path) -> None:
    data = file.read_bytes()
    last = read_gguf(file).tensors["b"]
    for length in range(last.start + last.size):
        file.write_bytes(data[:length])
        with pytest.raises(InputError):
            read_gguf(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(magic=b"GGML"), "not a GGUF file"),
        (b"", "not a GGUF file"),
        (header(version=1), "version 1"),
        (header(version=3 << 24), "big-endian"),
        (header(tensors=2**63), "tensors"),
        (header(entries=2**40), "metadata entries"),
        (header(entries=1) + text(b"x") + struct.pack("<IQ", 8, 2**62) + b"x" * 40, "a text of"),
        (header(entries=1) + text(b"x") + struct.pack("<IIQ", 9, 8, 2**60) + b"x" * 40, "texts"),
        (header(entries=1) + text(b"x") + struct.pack("<IIQ", 9, 12, 2**60) + b"x" * 40, "numbers"),
        (header(entries=1) + text(b"x") + struct.pack("<IIQ", 9, 9, 1) + b"x" * 40, "items of the type 9"),
        (header(entries=1) + text(b"x") + struct.pack("<I", 77) + b"x" * 40, "type 77"),
        (header(entries=1) + text(b"\xff") + struct.pack("<II", 4, 1) + b"x" * 40, "UTF-8"),
        (header(entries=2) + 2 * (text(b"x") + struct.pack("<II", 4, 1)), "twice"),
        (header(tensors=1) + tensor(dimensions=(2**40, 2**40)), "shape"),
        (header(tensors=1) + tensor(dimensions=(0,)), "shape"),
        (header(tensors=1) + tensor(dimensions=(33,), kind=8), "Q8_0"),
        (header(tensors=1) + tensor(dimensions=(1,) * 5) + b"x" * 64, "5 dimensions"),
        (header(tensors=1) + tensor(kind=99), "type number 99"),
        (header(tensors=1) + tensor(offset=2**60), "but the file has"),
        (header(tensors=1) + tensor(offset=7) + b"x" * 64, "but the file has"),
        (header(tensors=2) + tensor() + tensor() + b"x" * 64, "twice"),
        (header(tensors=2) + tensor() + tensor(name=b"b") + b"x" * 64, "overlap"),
    ],
)
def test_hostile_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_gguf(path)


def test_a_sparse_file_of_metadata_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(header(entries=1) + text(b"x") + struct.pack("<IQ", 8, 1 << 33))
        file.truncate(1 << 34)
    with pytest.raises(InputError, match="a text of 8,589,934,592 bytes"):
        read_gguf(path)


def test_the_file_of_a_folder(file: Path) -> None:
    assert find_gguf(file) == file
    assert find_gguf(file.parent) == file
    (file.parent / "other.gguf").write_bytes(b"")
    with pytest.raises(InputError, match=r"found 2 \(model\.gguf, other\.gguf\)"):
        find_gguf(file.parent)
    (file.parent / "config.json").write_text("{}")
    assert find_gguf(file.parent) is None, "the folder of another format"
    assert find_gguf(file.parent / "none") is None
