"""Static word vectors: both file formats, and errors with line numbers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from regard.errors import InputError
from regard.interpret.embeddings import read_static_vectors

GLOVE = "the 0.5 1 -2\ntrain 1 2 3\n. 0 0 1e-3\nTrain 4 5 6\n"


def write_vectors(folder: Path, text: str) -> Path:
    path = folder / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("head", ["", "4 3\n"])
def test_glove_and_word2vec_formats(head: str, tmp_path: Path) -> None:
    found = read_static_vectors(write_vectors(tmp_path, head + GLOVE), ["train", "the", "nowhere"])
    assert found.keys() == {"train", "the"}
    np.testing.assert_array_equal(found["train"], np.array([1, 2, 3], dtype=np.float32))
    np.testing.assert_array_equal(found["the"], np.array([0.5, 1, -2], dtype=np.float32))


def test_first_vector_of_a_word_is_used_and_reading_stops_early(tmp_path: Path) -> None:
    path = write_vectors(tmp_path, GLOVE + "train 9 9 9\nbroken\n")
    assert read_static_vectors(path, {"train"})["train"].tolist() == [1, 2, 3]
    assert read_static_vectors(path, {"Train", "train"})["Train"].tolist() == [4, 5, 6]


def test_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress(GLOVE.encode()))
    assert read_static_vectors(path, {"train"})["train"].tolist() == [1, 2, 3]


def test_lines_with_trailing_spaces(tmp_path: Path) -> None:
    """The word2vec program writes such lines."""
    path = write_vectors(tmp_path, "1 3\ntrain 1 2 3 \n")
    assert read_static_vectors(path, {"train"})["train"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"vectors\.txt is empty; expected a word and its numbers"),
        ("only\n", r"vectors\.txt line 1: expected a word and its numbers .* found 'only'"),
        ("a text of words\n", r"line 1: expected a word and its numbers"),
        ("the 1 2 3\ntrain 1 2\n", r"line 2: 2 numbers after the word, but the first line has 3"),
        ("2 3\nthe 1 2 3\ntrain 1 x 3\n", r"line 3: 'x' is not a number"),
        ("the 1 2 3\ntrain 1 nan 3\n", r"line 2: 'nan' is not a number"),
    ],
)
def test_invalid_lines_are_reported(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_static_vectors(write_vectors(tmp_path, text), {"train"})


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_static_vectors(tmp_path / "nowhere.txt", {"train"})
