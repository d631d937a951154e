"""Rows equal the tokenizer's own encoding of a text or pair, and windows cover the whole text."""

from __future__ import annotations

from itertools import pairwise

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.tasks.inputs import InputBuilder, InputSequence, max_context_windows, split_windows
from regard.text import Tokenizer
from tests.inference.folders import byte_level
from tests.tasks.conftest import Makers

ENCODERS = ("bert", "distilbert", "roberta", "xlm-roberta", "mpnet", "albert", "modernbert", "deberta-v2")
texts = st.text("ab xyz.\u00e9\u4e2d\U0001f600", max_size=30)


@pytest.mark.parametrize("family", ENCODERS)
@given(pairs=st.lists(st.tuples(texts, st.none() | texts), max_size=4), limit=st.integers(8, 20))
def test_whole_rows_of_an_encoder(
    rows_of: Makers, family: str, pairs: list[tuple[str, str | None]], limit: int
) -> None:
    rows = rows_of(family, limit)
    for row, (a, b) in zip(rows.sequences(pairs), pairs, strict=True):
        expected = rows.tokenizer.encode(a, b, max_length=limit)
        assert (row.ids, row.segments, row.num_truncated) == (expected.ids, expected.segments, expected.num_truncated)
        assert row.positions == [0]
        assert row.ids[0] == rows.tokenizer.cls_token_id
        assert len(row) <= limit


@pytest.mark.parametrize("family", ENCODERS)
@given(question=texts, context=texts)
def test_parts_and_questions_of_an_encoder(rows_of: Makers, family: str, question: str, context: str) -> None:
    rows = rows_of(family)
    question_tokens, context_tokens = rows.tokens([question, context])
    part, alone = rows.window(context_tokens.ids, list(range(len(context_tokens)))), rows.tokenizer.encode(context)
    assert (part.ids, part.segments) == (alone.ids, alone.segments)
    assert part.positions is not None
    assert [part.ids[position] for position in part.positions] == context_tokens.ids
    assert len(part) == len(context_tokens) + rows.max_length - rows.context_length
    row, first = rows.question(question_tokens.ids, context_tokens.ids)
    expected = rows.tokenizer.encode(question, context)
    assert (row.ids, row.segments, row.positions) == (expected.ids, expected.segments, None)
    assert row.ids[first : first + len(context_tokens)] == context_tokens.ids
    assert len(row) == len(context_tokens) + rows.max_length - rows.context_length_with_question(len(question_tokens))


def test_rows_of_a_gpt(rows_of: Makers) -> None:
    rows = rows_of("gpt2")
    (end,) = {rows.tokenizer.eos_token_id}
    a, b = (one.ids for one in rows.tokens(["the film", "good"]))
    assert len(a) == 2
    assert len(b) == 1
    one, two = rows.sequences([("the film", None), ("the film", "good")])
    assert one.ids == [end, *a, end]
    assert one.positions == [3]
    assert two.ids == [end, *a, end, *b, end]
    assert two.positions == [5]
    assert two.segments == [0] * 6
    part = rows.window(a, [0, 1])
    assert (part.ids, part.positions, rows.context_length) == ([end, *a], [1, 2], 63)
    row, first = rows.question(b, a)
    assert (row.ids, first, rows.context_length_with_question(1)) == ([end, *b, end, *a], 3, 61)


def test_a_gpt_with_a_begin_token(tokenizers: dict[str, Tokenizer]) -> None:
    pipeline = library.Tokenizer.from_str(tokenizers["roberta"].files()["tokenizer.json"].decode())
    tokens = Tokenizer(pipeline, special_tokens={"bos_token": "<s>", "eos_token": "</s>"})
    (row,) = InputBuilder(tokens, family="gpt2", max_length=8).sequences([("good", "the")])
    assert [tokens.token(number) for number in row.ids] == ["<s>", "good", "</s>", "the", "</s>"]


@given(a=st.integers(0, 30), b=st.none() | st.integers(0, 30), limit=st.integers(8, 40))
def test_a_gpt_truncates_the_longer_text_first(rows_of: Makers, a: int, b: int | None, limit: int) -> None:
    rows = rows_of("gpt2", limit)
    x, y, end = rows.tokenizer.id("x"), rows.tokenizer.id("y"), rows.tokenizer.eos_token_id
    (row,) = rows.sequences([("x" * a, None if b is None else "y" * b)])
    first_count, other = row.ids.count(x), row.ids.count(y)
    assert row.ids == [end, *[x] * first_count, end, *([] if b is None else [*[y] * other, end])]
    assert row.positions == [len(row) - 1]
    assert row.num_truncated == a - first_count + (b or 0) - other
    assert len(row) == limit if row.num_truncated else len(row) <= limit
    if first_count < a:
        assert first_count >= other - 1  # the longer text is cut first; an odd position goes to one of them
    if other < (b or 0):
        assert other >= first_count - 1


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2"])
def test_a_row_without_tokens(rows_of: Makers, family: str) -> None:
    rows = rows_of(family)
    empty: list[InputSequence] = [
        *rows.sequences([("", None), ("", "")]),
        rows.window([], []),
        rows.question([], [])[0],
    ]
    known = {rows.tokenizer.cls_token_id, rows.tokenizer.sep_token_id, rows.tokenizer.eos_token_id}
    assert all(len(row) >= 1 and set(row.ids) <= known for row in empty)
    assert rows.tokens([""])[0].ids == []


@pytest.mark.parametrize("limit", [-1, 0, 7])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_limit_too_small(rows_of: Makers, family: str, limit: int) -> None:
    with pytest.raises(InputError, match=rf"{limit} tokens are too short .*use 8 or more"):
        rows_of(family, limit)
    assert rows_of(family, 8).max_length == 8


def test_tokenizers_without_the_special_tokens_of_a_family(
    tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    endless = byte_level(tmp_path_factory.mktemp("endless") / "gpt2", specials=[], kind="gpt2")
    with pytest.raises(InputError, match="no end-of-text token"):
        InputBuilder(endless, family="gpt2", max_length=16)
    with pytest.raises(InputError, match=r"no \[CLS\]"):
        InputBuilder(tokenizers["gpt2"], family="bert", max_length=16).window([1], [0])


@given(st.data())
def test_windows_and_owners(data: st.DataObject) -> None:
    count, room = data.draw(st.integers(0, 200)), data.draw(st.integers(1, 40))
    overlap = data.draw(st.integers(0, room - 1))
    spans = split_windows(count, room, overlap)
    assert spans[0][0] == 0
    assert spans[-1][1] == count
    assert all(end - start <= room for start, end in spans)
    for (start, end), (after, last) in pairwise(spans):
        assert end - start == room
        assert end - after == overlap
        assert last > end
    found = max_context_windows(count, spans)
    assert len(found) == count
    for token, owner in enumerate(found):
        assert found[max(token - 1, 0)] <= owner
        scores = [shorter_side(token, span, count) for span in spans]
        assert scores[owner] == max(scores) >= 0
        assert owner == scores.index(max(scores))


def shorter_side(token: int, span: tuple[int, int], count: int) -> float:
    """The smaller context of a token, left or right; the ends of the text count as unlimited context."""
    start, end = span
    if not start <= token < end:
        return -1
    left = float("inf") if start == 0 else token - start
    right = float("inf") if end == count else end - 1 - token
    return min(left, right)


def test_windows_by_hand() -> None:
    assert split_windows(10, 10, 4) == [(0, 10)]
    assert split_windows(11, 10, 4) == [(0, 10), (6, 11)]
    assert split_windows(0, 10, 4) == [(0, 0)]
    assert max_context_windows(11, split_windows(11, 10, 4)) == [0] * 8 + [1] * 3
    assert max_context_windows(0, [(0, 0)]) == []
