"""Portions against rows that are laid out one by one in lists, and the thread that makes them prefetch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from regard.data.masking import IGNORE_INDEX
from regard.errors import InputError
from regard.training.pretraining.micro_batches import MicroBatch, MicroBatches, PositionShift, prefetch
from regard.training.pretraining.row_sampler import RowSampler, SentencePairs, TextChunks
from tests.training.pretraining.texts import CLS, DOCUMENTS, FIRST, PAD, SEP, TOKENIZER, made

KINDS = {"bare": (0, 0), "single": (2, 0), "full pairs": (3, 0.0), "pairs": (3, 0.3)}
BOOK = [[7, 9, 11, 8, 5]] * 30


def portions_of(kind: str, *, tokens: int = 70, row: int = 12, documents: list[list[int]] = BOOK) -> MicroBatches:
    text, (_, short) = made(documents, pieces=3), KINDS[kind]
    pairs = "pairs" in kind
    rows: RowSampler = (
        SentencePairs(text, tokens=row, seed=1, short=short) if pairs else TextChunks(text, tokens=row, seed=1)
    )
    return MicroBatches(rows, TOKENIZER, tokens=tokens, pairs=pairs, bare=kind == "bare")


def laid_out(rows: RowSampler, number: int, *, bare: bool) -> tuple[list[int], list[int], int]:
    """Ids, segments and label of one row."""
    spans = rows.spans(number, 1)
    (start, stop), (second, end) = spans.first[0].tolist(), spans.second[0].tolist()
    a, b = list(range(FIRST + start, FIRST + stop)), list(range(FIRST + second, FIRST + end))
    if bare:
        return a, [0] * len(a), 0
    one, two = [CLS, *a, SEP], [*b, SEP] if b else []
    return one + two, [0] * len(one) + [1] * len(two), int(spans.labels[0])


def tensors(portion: MicroBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(portion).items() if isinstance(value, Tensor)}


def same(one: MicroBatch, other: MicroBatch) -> bool:
    numbers = (one.number, one.next_row, one.tokens) == (other.number, other.next_row, other.tokens)
    mine, theirs = tensors(one), tensors(other)
    return numbers and mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("kind", ["bare", "single", "full pairs"])
def test_full_rows_are_a_rectangle(kind: str) -> None:
    portions = portions_of(kind)
    assert portions.length == 12 + KINDS[kind][0]
    count = 70 // portions.length
    for number, portion in enumerate(islice(portions.stream(), 30)):
        expected = [laid_out(portions.rows, number * count + row, bare=kind == "bare") for row in range(count)]
        assert portion.ids.tolist() == [ids for ids, _, _ in expected]
        assert portion.ids.dtype == torch.int32
        assert (portion.number, portion.next_row) == (number, (number + 1) * count)
        assert portion.tokens == count * portions.length
        assert portion.starts is None and portion.positions is None
        if kind == "full pairs":
            assert portion.segments is not None and portion.labels is not None
            assert portion.segments.tolist() == [segments for _, segments, _ in expected]
            assert portion.labels.tolist() == [label for _, _, label in expected]
        else:
            assert portion.segments is None and portion.labels is None


@given(DOCUMENTS, st.integers(4, 20), st.integers(1, 90), st.booleans())
def test_other_rows_lie_one_behind_the_other(documents: list[list[int]], row: int, more: int, few: bool) -> None:
    assume(len(documents) > 1)
    tokens = row + 3 + more
    portions = portions_of("pairs", documents=documents, row=row, tokens=tokens)
    if few:  # as if rows had got shorter: the filling is longer than a row
        portions._most = 1
    shapes, row = set(), 0
    for number, portion in enumerate(islice(portions.stream(), 5)):
        assert portion.number == number
        expected = [laid_out(portions.rows, k, bare=False) for k in range(row, portion.next_row)]
        assert expected  # at least one row a portion, or it would never end
        ids = [token for ids, _, _ in expected for token in ids]
        assert portion.tokens == len(ids) <= tokens
        assert portion.segments is not None and portion.labels is not None
        assert portion.starts is not None and portion.positions is not None
        assert portion.ids.tolist() == ids + [PAD] * (tokens - len(ids))
        assert portion.segments.tolist()[: len(ids)] == [segment for _, kinds, _ in expected for segment in kinds]
        labels = [label for _, _, label in expected]
        assert portion.labels.tolist() == labels + [IGNORE_INDEX] * (len(portion.labels) - len(labels))
        starts = portion.starts.tolist()
        lengths = np.diff(starts).tolist()
        assert starts[0] == 0 and starts[-1] == tokens and len(lengths) == len(portion.labels)
        assert lengths[: len(expected)] == [len(ids) for ids, _, _ in expected]
        filling = [length for length in lengths[len(expected) :] if length]
        assert sum(filling) == tokens - len(ids) and max(lengths) <= portions.length
        assert lengths[len(expected) + len(filling) :] == [0] * (len(lengths) - len(expected) - len(filling))
        assert portion.positions.tolist() == [place for length in lengths for place in range(length)]
        assert portion.starts.dtype == torch.int32
        shapes.add(tuple(tensor.shape for tensor in tensors(portion).values()))
        row = portion.next_row
    assert len(shapes) == 1


@pytest.mark.parametrize("documents", [BOOK, [[2, 3]] * 300, [[1]] * 500, [[60, 60]] * 20], ids=len)
def test_hardly_anything_is_filled_up(documents: list[list[int]]) -> None:
    portions = portions_of("pairs", documents=documents, row=40, tokens=2000)
    filled = [2000 - portion.tokens for portion in islice(portions.stream(), 20)]
    assert sum(filled) / len(filled) < 43


@pytest.mark.parametrize("kind", KINDS)
def test_a_portion_is_the_same_whoever_starts_where(kind: str) -> None:
    portions = list(islice(portions_of(kind).stream(), 12))
    for portion, behind in pairwise(portions[3:]):
        again = portions_of(kind).stream(portion.number, portions[portion.number - 1].next_row)
        assert same(next(again), portion) and same(next(again), behind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_processes_share_one_order(kind: str, world: int) -> None:
    """Process r of w takes portions r, r + w, ...: together they read what one would, in the same order."""
    ranks = [islice(portions_of(kind).stream(), rank, None, world) for rank in range(world)]
    together = [next(ranks[number % world]) for number in range(12)]
    assert all(map(same, together, portions_of(kind).stream()))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_in_the_same_order_in_portions_of_any_size(kind: str) -> None:
    """So a run may go on with fewer processes, or more, and take the exact next row."""

    def rows(tokens: int) -> list[list[int]]:
        found: list[list[int]] = []
        for portion in islice(portions_of(kind, tokens=tokens).stream(), 4000 // tokens):
            starts = portion.starts
            bounds = range(0, portion.tokens + 1, portion.ids.shape[-1]) if starts is None else starts.tolist()
            count = portion.next_row - len(found)
            flat = portion.ids.flatten().tolist()
            found += [flat[bounds[row] : bounds[row + 1]] for row in range(count)]
        return found

    one, other = rows(70), rows(400)
    least = min(len(one), len(other))
    assert least > 100 and one[:least] == other[:least]


def test_a_portion_without_room_for_a_row_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"micro-batch of 14 tokens has no room for one row of 15.*data\.tokens_per_micro_batch"
    ):
        portions_of("pairs", tokens=14)
    assert next(portions_of("pairs", tokens=15).stream()).next_row > 0


def test_a_tokenizer_without_the_tokens_around_a_row_is_refused() -> None:
    from types import SimpleNamespace

    bare: Any = SimpleNamespace(cls_token_id=None, sep_token_id=None, pad_token_id=None)
    rows = TextChunks(made(BOOK), tokens=12, seed=0)
    with pytest.raises(InputError, match=r"no tokens \[CLS\] and \[SEP\]"):
        MicroBatches(rows, bare, tokens=70, pairs=False)
    assert next(MicroBatches(rows, bare, tokens=70, pairs=False, bare=True).stream()).ids.shape == (5, 12)


def test_a_portion_moves_whole() -> None:
    portion = next(portions_of("pairs").stream())
    moved = portion.to(torch.device("meta"))
    assert (moved.number, moved.next_row, moved.tokens) == (0, portion.next_row, portion.tokens)
    assert tensors(moved).keys() == tensors(portion).keys() == {"ids", "segments", "labels", "starts", "positions"}
    assert all(tensor.device.type == "meta" for tensor in tensors(moved).values())


def test_ahead_gives_the_same_portions() -> None:
    made_ahead = list(islice(prefetch(portions_of("pairs").stream(), pin=False), 20))
    assert all(map(same, made_ahead, portions_of("pairs").stream()))


def test_ahead_ends_where_the_portions_do() -> None:
    finite = list(islice(portions_of("pairs").stream(), 6))
    assert list(map(id, prefetch(iter(finite), pin=False))) == list(map(id, finite))


def test_ahead_makes_only_a_few_before_they_are_asked_for() -> None:
    taken = []

    def counted() -> Iterator[MicroBatch]:
        for portion in portions_of("pairs").stream():
            taken.append(portion.number)
            yield portion

    portions = prefetch(counted(), pin=False)
    assert not taken  # nothing before the first question
    for _ in range(10):
        next(portions)
    time.sleep(0.2)  # in which hundreds could be made
    portions.close()
    assert len(taken) == 14


def test_ahead_passes_errors_on_behind_the_good_portions() -> None:
    def failing() -> Iterator[MicroBatch]:
        yield from islice(portions_of("pairs").stream(), 3)
        raise OSError("the shard is gone")

    portions = prefetch(failing(), pin=False)
    assert [next(portions).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the shard is gone"):
        next(portions)


def test_the_thread_ends_with_the_generator() -> None:
    before = set(threading.enumerate())
    portions = prefetch(portions_of("pairs").stream(), pin=False)
    next(portions)
    (thread,) = set(threading.enumerate()) - before
    portions.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["single", "full pairs", "pairs"])
def test_shifted_rows_are_the_same_rows_further_on(kind: str) -> None:
    plain = portions_of(kind)
    moved = MicroBatches(plain.rows, TOKENIZER, tokens=70, pairs=plain.pairs, shift=PositionShift(0.5, 30, seed=2))
    begins = []
    for portion in islice(moved.stream(), 40):
        assert portion.starts is not None and portion.positions is not None
        for start, stop in pairwise(portion.starts.tolist()):
            positions = portion.positions[start:stop].tolist()
            begins += positions[:1]
            assert positions == list(range(positions[0], positions[0] + stop - start)) if positions else start == 70
    assert min(begins) == 0 and 25 < max(begins) <= 30
    assert 0.3 < sum(begin > 0 for begin in begins) / len(begins) < 0.7
    assert same(moved.micro_batch(3, 9), moved.micro_batch(3, 9))
    first, same_rows = moved.micro_batch(0, 0), plain.micro_batch(0, 0)
    assert torch.equal(first.ids.flatten()[:40], same_rows.ids.flatten()[:40])


def test_a_shifted_row_of_a_model_takes_its_positions() -> None:
    """The last position is used, and none behind it."""
    shift = PositionShift(1.0, 4, seed=0)
    moved = MicroBatches(portions_of("single").rows, TOKENIZER, tokens=70, pairs=False, shift=shift)
    highest = max(
        int(portion.positions.max()) for portion in islice(moved.stream(), 30) if portion.positions is not None
    )
    assert highest == moved.length - 1 + shift.most
