"""Sentinels: their ids in the vocabulary, and that the rest of the vocabulary does not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from regard.data.corpus import train_tokenizer
from regard.errors import InputError
from regard.text import Tokenizer
from regard.training.recipes.pretraining.span_corruption import SENTINELS, sentinels_of, train_with_sentinels
from tests.training.recipes.pretraining.runs import story

LINES = [line for line in story().splitlines() if line]
SIZE = 400
TEXT = "The river follows the painter."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_with_sentinels(LINES, size=SIZE, lowercase=False, minimum=2, max_length=64)


def test_sentinels_have_the_last_ids_in_descending_order(tokenizer: Tokenizer) -> None:
    assert tokenizer.size == len(tokenizer.vocabulary) == SIZE
    assert sentinels_of(tokenizer) == list(range(SIZE - 1, SIZE - 1 - SENTINELS, -1))
    assert tokenizer.token(SIZE - 1) == "<extra_id_0>" and tokenizer.token(SIZE - SENTINELS) == "<extra_id_99>"


def test_text_encoding_is_unchanged_and_ends_with_the_end_token(tokenizer: Tokenizer) -> None:
    plain = train_tokenizer(LINES, kind="bpe", size=SIZE - SENTINELS - 1)
    ids = plain.encode(TEXT, add_special_tokens=False).ids
    assert tokenizer.encode(TEXT, add_special_tokens=False).ids == ids
    assert tokenizer.encode(TEXT).ids == [*ids, tokenizer.eos_token_id]
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.pad_token_id == SIZE - SENTINELS - 1 and tokenizer.max_length == 64


def test_transformers_encodes_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = Tokenizer.open(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "The <extra_id_0> follows <extra_id_1>."
    assert again.encode(text).ids == tokenizer.encode(text).ids == theirs(text)["input_ids"]
    assert sentinels_of(again) == sentinels_of(tokenizer)
    assert {tokenizer.id("<extra_id_0>"), tokenizer.id("<extra_id_1>")} < {*tokenizer.encode(text).ids}
    assert theirs.pad_token_id == tokenizer.pad_token_id and theirs.eos_token_id == tokenizer.eos_token_id


def test_other_vocabularies_have_no_sentinels() -> None:
    assert sentinels_of(train_tokenizer(LINES, size=100)) == []


def test_an_invalid_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"at least 257 entries.*vocab_size, 300, 101 entries"):
        train_with_sentinels(LINES, size=300, lowercase=False, minimum=2, max_length=None)
