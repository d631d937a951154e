"""The ids of cached words equal those of the library for any text, truncation included."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import InputError
from regard.text import TokenIds, Tokenizer, word_cache
from regard.text.word_cache import WordCache
from tests.text.conftest import EDGE_CASE_TEXTS
from tests.text.test_offsets import TEXTS

SPACED = st.lists(TEXTS | st.sampled_from(["", " ", "film", "[SEP]", "\u0301", "\n"]), max_size=8).map(" ".join)


def as_lists(found: TokenIds) -> list[list[int]]:
    return [part.tolist() for part in np.split(found.ids, np.cumsum(found.lengths)[:-1])] if len(found) else []


@pytest.fixture(scope="session")
def tokenizer(bert: Any) -> Tokenizer:
    assert WordCache.of(bert.ours._pipeline) is not None
    return bert.ours  # type: ignore[no-any-return]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(SPACED, max_size=5), max_length=st.none() | st.integers(2, 12))
def test_ids_equal_those_of_the_library(tokenizer: Tokenizer, texts: list[str], max_length: int | None) -> None:
    found = tokenizer.encode_ids(texts, max_length=max_length)
    ids, truncated = tokenizer.ids_batch(texts, max_length=max_length)
    assert as_lists(found) == ids
    assert found.num_truncated.tolist() == truncated


def test_edge_cases_also_when_all_words_are_known(tokenizer: Tokenizer) -> None:
    expected = tokenizer.ids_batch(EDGE_CASE_TEXTS)[0]
    for _ in range(2):
        assert as_lists(tokenizer.encode_ids(EDGE_CASE_TEXTS)) == expected


def test_other_tokenizers_have_none(gpt2: Any) -> None:
    assert WordCache.of(gpt2.ours._pipeline) is None
    assert as_lists(gpt2.ours.encode_ids(["a film"])) == gpt2.ours.ids_batch(["a film"])[0]


def test_it_starts_anew_when_it_is_full(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_CHARACTERS", 20)
    cache = WordCache.of(tokenizer._pipeline)
    assert cache is not None
    for number in range(50):
        text = f"word{number} and more"
        assert cache.encode([text])[0].tolist() == tokenizer.ids_batch([text])[0][0]
        assert len(cache._words._numbers) < 10 and len(cache._parts._numbers) < 10


def test_copies_are_independent(tokenizer: Tokenizer) -> None:
    tokenizer.encode_ids(["a film"])
    cache = tokenizer._word_cache
    assert cache is not None
    for twin in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert twin.encode(["a film"])[0].tolist() == cache.encode(["a film"])[0].tolist()


def test_threads_share_it(tokenizer: Tokenizer) -> None:
    texts = [[f"w{number * step} film {step}" for number in range(40)] for step in range(1, 20)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(tokenizer.encode_ids, texts))
    assert [as_lists(one) for one in found] == [tokenizer.ids_batch(part)[0] for part in texts]


def test_errors_stay(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="no room for the 2 special tokens"):
        tokenizer.encode_ids(["a film"], max_length=1)
    with pytest.raises(InputError, match="expected a str"):
        tokenizer.encode_ids([None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="got one str"):
        tokenizer.encode_ids("a film")
