"""Rows of texts read from files, and batches of them packed into tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.training.recipes.embedding.data import TokenizedTexts, pack, read_text_rows, read_texts

PAIRS = [("the first text", "its partner"), ("a second one", "and another")]


def write(folder: Path, name: str, *rows: str) -> Path:
    path = folder / name
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def test_pairs_triplets_and_scored_pairs_are_told_apart(tmp_path: Path) -> None:
    pairs = read_text_rows(write(tmp_path, "pairs.tsv", *map("\t".join, PAIRS)))
    assert pairs.kind == "pairs" and list(zip(*pairs.columns, strict=True)) == PAIRS
    triplets = read_text_rows(write(tmp_path, "triplets.tsv", *(f"{a}\t{b}\tno {a}" for a, b in PAIRS)))
    assert triplets.kind == "triplets" and triplets.columns[2] == ["no the first text", "no a second one"]
    scored = read_text_rows(write(tmp_path, "scored.tsv", *(f"{a}\t{b}\t{len(a) / 4}" for a, b in PAIRS)))
    assert scored.kind == "scored pairs" and scored.scores == [3.5, 3.0]


def test_a_header_names_the_columns(tmp_path: Path) -> None:
    rows = ["id,negative,anchor,positive", '1,"no, not that","yes, this",that', "2,n,a,p"]
    read = read_text_rows(write(tmp_path, "named.csv", *rows))
    assert read.columns == (["yes, this", "a"], ["that", "p"], ["no, not that", "n"])
    lines = ['{"score": 2, "sentence1": "a", "sentence2": "b"}', '{"score": 3.5, "sentence1": "c", "sentence2": "d"}']
    scored = read_text_rows(write(tmp_path, "scored.jsonl", *lines))
    assert scored.columns == (["a", "c"], ["b", "d"]) and scored.scores == [2.0, 3.5]


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "wide.tsv", "x\tone\ty\ttwo\t0.5\tz", "x\tthree\ty\tfour\t1\tz")
    assert read_text_rows(path, TableOptions(("1", "3"))).kind == "pairs"
    scored = read_text_rows(path, TableOptions(("3", "1", "4")))
    assert scored.columns == (["two", "four"], ["one", "three"]) and scored.scores == [0.5, 1.0]
    with pytest.raises(InputError, match="expected pairs"):
        read_text_rows(path, TableOptions(("1",)))


def test_the_columns_of_sts_b_are_found(shared_data) -> None:  # type: ignore[no-untyped-def]
    read = read_text_rows(shared_data("stsb/sts-dev.csv"))
    assert len(read) == 1500 and read.kind == "scored pairs"
    assert read.scores is not None and max(read.scores) == 5.0
    assert read.columns[0][0] == "A man with a hard hat is dancing."


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["just one text", "and another"], "cannot tell which columns"),
        (["a\tb", "c\t"], "line 2 has no text"),
        (["a\tb\t1", "c\td\tx y z"] + ["e\tf\t2"] * 2000, None),
        (["anchor\tpositive"], "a header and no rows"),
    ],
)
def test_bad_files_are_refused(rows: list[str], message: str | None, tmp_path: Path) -> None:
    path = write(tmp_path, "bad.tsv", *rows)
    if message is None:  # a third column that is not all numbers is text
        assert read_text_rows(path).kind == "triplets"
        return
    with pytest.raises(InputError, match=message):
        read_text_rows(path)


def test_rows_without_a_text_can_be_skipped(tmp_path: Path) -> None:
    read = read_text_rows(write(tmp_path, "gaps.tsv", "a\tb", "c\t ", "d\te"), TableOptions(missing="skip"))
    assert read.columns == (["a", "d"], ["b", "e"]) and read.dropped == {"a text is missing": 1}


def test_a_score_that_is_not_a_number_has_its_line(tmp_path: Path) -> None:
    rows = ["sentence1\tsentence2\tscore", *["a\tb\t1"] * 1200, "c\td\thigh"]
    with pytest.raises(InputError, match=r"line 1202: the score should be a number, got 'high'"):
        read_text_rows(write(tmp_path, "late.tsv", *rows))


def test_texts_are_one_per_line_or_a_column(tmp_path: Path) -> None:
    assert read_texts(write(tmp_path, "t.txt", "one", "two, three")).columns == (["one", "two, three"],)
    named = write(tmp_path, "t.csv", "id,text", '1,"a, b"', "2,c")
    assert read_texts(named, TableOptions(("text",))).columns == (["a, b", "c"],)
    assert read_texts(["x", "y"]).kind == "texts"


def test_the_digest_depends_on_every_text(tmp_path: Path) -> None:
    one, other = read_texts(["ab", "c"]), read_texts(["a", "bc"])
    assert one.digest() == read_texts(["ab", "c"]).digest() != other.digest()


def tokenized(texts: list[list[int]]) -> TokenizedTexts:
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return TokenizedTexts(np.array([number for text in texts for number in text], dtype=np.uint16), offsets)


texts = st.lists(st.lists(st.integers(1, 60_000), min_size=1, max_size=9), min_size=5, max_size=5)


@given(texts, texts, st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 80))
def test_packed_batches_hold_the_texts_of_their_owners(
    first: list[list[int]], second: list[list[int]], rows: list[int], capacity: int
) -> None:
    chosen = [first[row] for row in rows] + [second[row] for row in rows]
    size = sum(map(len, chosen))
    batch = pack([tokenized(first), tokenized(second)], np.array(rows), capacity=capacity, max_length=9)
    inputs = {name: tensor.numpy() for name, tensor in batch.items()}
    assert inputs["lengths"].sum() == size and len(inputs["ids"]) == max(size, capacity)
    assert inputs["lengths"].tolist() == list(map(len, chosen))
    for number, text in enumerate(chosen):
        places = np.flatnonzero(inputs["owner"] == number)
        assert inputs["ids"][places].tolist() == text
        assert inputs["positions"][places].tolist() == list(range(len(text)))
        assert places[0] in inputs["starts"] and places[-1] + 1 in inputs["starts"]
    assert (inputs["owner"][size:] == len(chosen)).all()
    lengths = np.diff(inputs["starts"])
    assert (lengths >= 0).all() and lengths.max() <= 9 and inputs["starts"][-1] == len(inputs["ids"])
    if capacity:
        assert len(inputs["starts"]) == len(chosen) + 2 + capacity // 9
