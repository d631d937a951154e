"""Images from folders and IDX files."""

from __future__ import annotations

import builtins
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.data.readers import read_image_examples
from regard.errors import InputError


def idx(shape: tuple[int, ...], values: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + values


@pytest.mark.parametrize(("name", "count", "first"), [("train", 60000, "5"), ("t10k", 10000, "7")])
def test_mnist(shared_data: Callable[[str], Path], name: str, count: int, first: str) -> None:
    read = read_image_examples(shared_data(f"mnist/{name}-images-idx3-ubyte.gz"), labeled=True)
    assert len(read.examples) == len(read.lines) == count
    assert (read.examples[0].label, read.examples[0].pixels.shape) == (first, (28, 28))
    assert {example.label for example in read.examples} == set("0123456789")
    assert read.description == f"IDX, 28 x 28, labels in {name}-labels-idx1-ubyte.gz"


def test_idx_labels_are_found_by_name(tmp_path: Path) -> None:
    images = tmp_path / "my-images-idx3-ubyte"
    images.write_bytes(idx((2, 1, 2), bytes([0, 255, 7, 8])))
    assert [example.label for example in read_image_examples(images).examples] == [None, None]
    with pytest.raises(InputError, match="expected them in my-labels-idx1-ubyte"):
        read_image_examples(images, labeled=True)
    (tmp_path / "my-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((2,), bytes([3, 12]))))
    read = read_image_examples(images, labeled=True)
    assert [(p.label, p.name, p.pixels.tolist()) for p in read.examples] == [
        ("3", "0", [[0, 255]]),
        ("12", "1", [[7, 8]]),
    ]
    assert [example.label for example in read_image_examples(images, labeled=False).examples] == [None, None]
    (tmp_path / "my-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((3,), bytes([3, 12, 1]))))
    with pytest.raises(InputError, match=r"my-labels-idx1-ubyte.gz has 3 labels for 2 images"):
        read_image_examples(images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither an IDX file"),
        (b"some text", "neither an IDX file"),
        (idx((2, 1, 2), b"abc"), "should have 20 bytes by its header, got 19"),
        (idx((4,), b"abcd"), "has 4 bytes, expected images"),
        (idx((0, 1, 2), b""), "has no images"),
    ],
)
def test_invalid_idx_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_image_examples(path)
    with pytest.raises(InputError, match="is truncated or damaged"):
        packed = tmp_path / "b.gz"
        packed.write_bytes(gzip.compress(b"x" * 1000)[:-9])
        read_image_examples(packed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for name, value in (("dog/b.png", 10), ("cat/a.png", 20), ("cat/.hidden.png", 30), ("c.png", 40)):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((2, 3), value, dtype=np.uint8)).save(path)
    (tmp_path / "pictures" / "cat" / "notes.txt").write_text("x")
    (tmp_path / "pictures" / "empty").mkdir()
    return tmp_path / "pictures"


def test_one_folder_per_class(folder: Path) -> None:
    read = read_image_examples(folder, labeled=True)
    assert [(p.label, p.name, int(p.pixels[0, 0])) for p in read.examples] == [
        ("cat", "cat/a.png", 20),
        ("dog", "dog/b.png", 10),
    ]
    assert read.description == "image folder, 2 classes: cat, dog"
    assert read.dropped == {"file without the suffix of an image": 1, "image outside of the class folders": 1}
    assert read.examples[0].pixels.shape == (2, 3)
    everything = read_image_examples(folder, labeled=False)
    assert [(p.label, p.name) for p in everything.examples] == [
        (None, "c.png"),
        (None, "cat/a.png"),
        (None, "dog/b.png"),
    ]


def test_folder_of_images_and_single_image(folder: Path) -> None:
    read = read_image_examples(folder / "dog")
    assert [(p.label, p.name) for p in read.examples] == [(None, "b.png")]
    assert read.description == "image folder, no classes"
    assert read_image_examples(folder / "c.png").examples[0].pixels.tolist() == [[40] * 3] * 2
    with pytest.raises(InputError, match="expected one folder per class"):
        read_image_examples(folder / "dog", labeled=True)
    with pytest.raises(InputError, match="one image without a label"):
        read_image_examples(folder / "c.png", labeled=True)
    with pytest.raises(InputError, match=r"one folder per class .*such as .*pictures"):
        (folder / "c.png").unlink()
        read_image_examples(folder.parent)


def test_color_modes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    clear = np.zeros((1, 2, 4), dtype=np.uint8)
    clear[0, 0] = [255, 0, 0, 255]
    image.fromarray(clear, "RGBA").save(tmp_path / "clear.png")
    assert read_image_examples(tmp_path / "clear.png").examples[0].pixels.tolist() == [[[255, 0, 0], [255, 255, 255]]]
    deep = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_image_examples(tmp_path / "deep.png").examples[0].pixels.tolist() == [[0, 100, 255]]


def test_damaged_image_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(InputError, match=r"a\.png cannot be read as an image"):
        read_image_examples(tmp_path)


def test_missing_pillow_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def import_without_pillow(name: str, *arguments: object) -> object:
        if name == "PIL":
            raise ImportError(name)
        return real(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", import_without_pillow)
    with pytest.raises(InputError, match=r"pip install 'regard\[images\]'"):
        read_image_examples(folder)
