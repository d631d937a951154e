"""Truncation equals that of the tokenizers library for all combinations of small lengths."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from regard.errors import InputError
from regard.text.tokenizer import cuts, encoding, longest_first


@pytest.fixture
def pipeline() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordLevel({"<": 0, ">": 1, "a": 2, "b": 3, "?": 4}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="< $A >", pair="< $A > $B:1 >:1", special_tokens=[("<", 0), (">", 1)]
    )
    return made


@pytest.mark.parametrize("length", range(3, 14))
def test_truncation_of_pairs_equals_the_library(pipeline: tokenizers.Tokenizer, length: int) -> None:
    lengths = [(first, second) for first in range(8) for second in range(8)]
    pairs = [("a " * first, "b " * second) for first, second in lengths]
    full = pipeline.encode_batch(pairs)
    pipeline.enable_truncation(length)
    for one, reference in zip(full, pipeline.encode_batch(pairs), strict=True):
        ours = encoding(one, length)
        assert (ours.ids, ours.offsets, ours.segments) == (reference.ids, reference.offsets, reference.type_ids)
        assert ours.num_truncated == len(one) - len(reference)


@pytest.mark.parametrize("length", range(2, 9))
def test_truncation_of_single_texts_equals_the_library(pipeline: tokenizers.Tokenizer, length: int) -> None:
    ours = encoding(pipeline.encode("a a b b a"), length)
    assert ours.ids == [0, *[2, 2, 3, 3, 2][: length - 2], 1]
    assert ours.special_tokens_mask == [True] + [False] * (len(ours) - 2) + [True]
    assert ours.num_truncated == max(0, 7 - length)


def test_too_small_length_is_rejected(pipeline: tokenizers.Tokenizer) -> None:
    with pytest.raises(InputError, match="no room for the 3 special tokens"):
        cuts(pipeline.encode("a", "b"), 2)
    with pytest.raises(InputError, match="at least 1"):
        cuts(pipeline.encode("a"), 0)


def test_odd_token_is_removed_from_the_longer_text() -> None:
    assert longest_first(9, 8, 5) == (3, 2)
    assert longest_first(8, 9, 5) == (2, 3)
    assert longest_first(2, 9, 5) == (2, 3)
    assert longest_first(9, 0, 5) == (5, 0)
