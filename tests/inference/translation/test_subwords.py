"""Subwords: encoding and decoding, saving and loading."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.inference.translation.subwords import BEGIN, PAD, Subwords, train_subwords, word_indices
from tests.inference.translation.conftest import sentences

PAIRS = sentences(60)
JOINT = train_subwords(PAIRS, size=300, joint=True)
APART = train_subwords(PAIRS, size=280, joint=False)


@pytest.mark.parametrize(("subwords", "size"), [(JOINT, 300), (APART, 280)])
def test_size_and_special_tokens(subwords: Subwords, size: int) -> None:
    assert subwords.source.size == subwords.target.size == size
    assert len({subwords.begin, subwords.end, subwords.padding}) == 3
    assert subwords.target.token(subwords.begin) == BEGIN and subwords.target.token(subwords.padding) == PAD
    assert subwords.joint == (subwords is JOINT)


@given(st.text())
def test_decoding_restores_every_text(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode().strip()
    ids = JOINT.encode_targets([clean])[0]
    assert ids[-1] == JOINT.end
    assert JOINT.decode(ids) == JOINT.decode(ids[:-1]) == clean


def test_a_word_is_the_same_at_the_start_and_inside() -> None:
    first, inside = JOINT.encode_sources(["dog sees", "sees dog"])
    assert sorted(first) == sorted(inside)


def test_separate_languages_have_their_own_pieces() -> None:
    assert APART.encode_sources(["the house"])[0] != APART.encode_targets(["the house"])[0]


@pytest.mark.parametrize("subwords", [JOINT, APART])
def test_subwords_are_saved_and_loaded(subwords: Subwords, tmp_path: Path) -> None:
    for name, content in subwords.files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    again = Subwords.open(tmp_path)
    texts = [pair.source for pair in PAIRS]
    assert again.joint == subwords.joint
    assert again.encode_sources(texts) == subwords.encode_sources(texts) and again.encode_targets(
        texts
    ) == subwords.encode_targets(texts)
    assert (again.begin, again.end, again.padding) == (subwords.begin, subwords.end, subwords.padding)


def test_pieces_map_to_their_words() -> None:
    text = "der grüne Hund!  ß 😀 x"
    ids = JOINT.encode_targets([text])[0][:-1]
    indices = word_indices(JOINT.target, ids)
    assert indices == sorted(indices) and set(indices) == set(range(6))
    for number, word in enumerate(text.split()):
        mine = [id for id, index in zip(ids, indices, strict=True) if index == number]
        assert JOINT.decode(mine) == word


def test_the_same_pairs_give_the_same_subwords() -> None:
    assert train_subwords(PAIRS, size=300, joint=True).files() == JOINT.files()


def test_a_vocabulary_size_too_large_for_the_text() -> None:
    with pytest.raises(InputError, match=r"this text supports .* vocabulary\.vocab_size"):
        train_subwords(PAIRS, size=5000, joint=True)
    with pytest.raises(InputError, match="expected at least 260"):
        train_subwords(PAIRS, size=100, joint=True)
