"""Offsets are correct and equal the reference for any text: joiners, right-to-left, NUL, surrogates, megabytes."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.text import Encoding

FRAGMENTS = ["[MASK]", "<mask>", "</s>", "<|endoftext|>", "hello", " world", "##ing", "n't", "e\u0301"]
FRAGMENTS += ["\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d"]
ODD = "\ud800\udbff\udc00\udfff\u200d\u200c\u200f\u202e\u2066\ufeff\ufffd\0\x85\u2028\xa0 \n\tAé漢한"
TEXTS = st.lists(st.characters() | st.sampled_from(ODD) | st.sampled_from(FRAGMENTS), max_size=40).map("".join)


def as_valid_utf8(text: str) -> str:
    """The text as valid UTF-8, computed without the code under test."""
    return "".join("\ufffd" if unicodedata.category(mark) == "Cs" else mark for mark in text)


@lru_cache
def slice_matches_wordpiece(token: str, text: str) -> bool:
    """Whether the slice of the text, normalized like BERT, is the token."""
    removed_categories = {"Cc", "Cf", "Cn", "Co", "Cs"}
    kept = [mark for mark in text if unicodedata.category(mark) not in removed_categories and mark != "\ufffd"]
    marks = [mark for mark in unicodedata.normalize("NFD", "".join(kept)) if unicodedata.category(mark) != "Mn"]
    clean = "".join(mark.lower() for mark in marks)
    piece = token.removeprefix("##") if token.startswith("##") and not text.startswith("#") else token
    # One character can become several (a Hangul syllable becomes its letters): then a token may be a part of it.
    split = len(marks) > sum(unicodedata.category(mark) != "Mn" for mark in kept)
    return piece in clean if split else piece == clean


def check_offsets(name: str, encoding: Encoding, text: str) -> None:
    covered = bytearray(len(text))
    for token, (start, end), special in zip(
        encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True
    ):
        assert 0 <= start <= end <= len(text)
        covered[start:end] = b"\1" * (end - start)
        if special:
            assert (start, end) == (0, 0)
        elif name == "bert" and token != "[UNK]":
            assert token == text[start:end] or slice_matches_wordpiece(token, text[start:end]), (token, text[start:end])
    if name == "gpt2":
        assert all(covered)
    elif name == "roberta":
        assert all(mark.isspace() for mark, seen in zip(text, covered, strict=True) if not seen)


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(text=TEXTS)
def test_offsets_of_any_text_equal_the_reference(bert: Any, gpt2: Any, roberta: Any, text: str) -> None:
    for name, pair in {"bert": bert, "gpt2": gpt2, "roberta": roberta}.items():
        encoding = pair.ours.encode(text)
        reference = pair.theirs.backend_tokenizer.encode(as_valid_utf8(text))
        assert (encoding.ids, encoding.offsets) == (reference.ids, reference.offsets)
        check_offsets(name, encoding, text)
        if name == "gpt2":
            assert pair.ours.decode(encoding.ids, skip_special_tokens=False) == as_valid_utf8(text)


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    ["a" * 2**20, "hello wörld, " * 80_000, "\u202e\u05e9\u05dc 👩‍👩‍👧\0\ud800" * 40_000],
    ids=["one word", "words", "joiners"],
)
def test_line_of_one_megabyte(bert: Any, gpt2: Any, line: str) -> None:
    for name, pair in {"bert": bert, "gpt2": gpt2}.items():
        (ids,), (cut,) = pair.ours.ids_batch([line], max_length=512)
        (reference,) = pair.theirs.backend_tokenizer.encode_batch_fast([as_valid_utf8(line)])
        last = 1 if name == "bert" else 0
        kept = min(len(reference.ids), 512)
        assert ids == reference.ids[: kept - last] + reference.ids[len(reference.ids) - last :]
        assert cut == len(reference.ids) - kept
    check_offsets("bert", bert.ours.encode(line), line)
