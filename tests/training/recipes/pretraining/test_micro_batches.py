"""Micro-batches compared with rows laid out one by one in lists, and the prefetch thread."""

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
from regard.data.prefetch import prefetch
from regard.errors import InputError
from regard.training.recipes.pretraining.micro_batches import MicroBatch, MicroBatches, PositionShift
from regard.training.recipes.pretraining.row_sampler import RowSampler, SentencePairs, TextChunks
from tests.training.recipes.pretraining.texts import CLS, DOCUMENTS, FIRST, PAD, SEP, TOKENIZER, token_stream

KINDS = {"bare": (0, 0), "single": (2, 0), "full pairs": (3, 0.0), "pairs": (3, 0.3)}
BOOK = [[7, 9, 11, 8, 5]] * 30


def batches_of(kind: str, *, tokens: int = 70, row: int = 12, documents: list[list[int]] = BOOK) -> MicroBatches:
    text, (_, short) = token_stream(documents, pieces=3), KINDS[kind]
    pairs = "pairs" in kind
    rows: RowSampler = (
        SentencePairs(text, tokens=row, seed=1, short=short) if pairs else TextChunks(text, tokens=row, seed=1)
    )
    return MicroBatches(rows, TOKENIZER, tokens=tokens, pairs=pairs, bare=kind == "bare")


def expected_row(rows: RowSampler, number: int, *, bare: bool) -> tuple[list[int], list[int], int]:
    """The ids, segments and label of one row."""
    spans = rows.spans(number, 1)
    (start, stop), (second, end) = spans.first[0].tolist(), spans.second[0].tolist()
    a, b = list(range(FIRST + start, FIRST + stop)), list(range(FIRST + second, FIRST + end))
    if bare:
        return a, [0] * len(a), 0
    one, two = [CLS, *a, SEP], [*b, SEP] if b else []
    return one + two, [0] * len(one) + [1] * len(two), int(spans.labels[0])


def tensors(batch: MicroBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}


def batches_equal(one: MicroBatch, other: MicroBatch) -> bool:
    same_numbers = (one.number, one.next_row, one.tokens) == (other.number, other.next_row, other.tokens)
    mine, theirs = tensors(one), tensors(other)
    return same_numbers and mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("kind", ["bare", "single", "full pairs"])
def test_full_rows_are_a_rectangle(kind: str) -> None:
    batches = batches_of(kind)
    assert batches.length == 12 + KINDS[kind][0]
    count = 70 // batches.length
    for number, batch in enumerate(islice(batches.stream(), 30)):
        expected = [expected_row(batches.rows, number * count + row, bare=kind == "bare") for row in range(count)]
        assert batch.ids.tolist() == [ids for ids, _, _ in expected]
        assert batch.ids.dtype == torch.int32
        assert (batch.number, batch.next_row) == (number, (number + 1) * count)
        assert batch.tokens == count * batches.length
        assert batch.starts is None and batch.positions is None
        if kind == "full pairs":
            assert batch.segments is not None and batch.labels is not None
            assert batch.segments.tolist() == [segments for _, segments, _ in expected]
            assert batch.labels.tolist() == [label for _, _, label in expected]
        else:
            assert batch.segments is None and batch.labels is None


@given(DOCUMENTS, st.integers(4, 20), st.integers(1, 90), st.booleans())
def test_other_rows_are_packed(documents: list[list[int]], row: int, more: int, few: bool) -> None:
    assume(len(documents) > 1)
    tokens = row + 3 + more
    batches = batches_of("pairs", documents=documents, row=row, tokens=tokens)
    if few:  # as if rows had become shorter: the remainder is longer than a row
        batches._most = 1
    shapes, row = set(), 0
    for number, batch in enumerate(islice(batches.stream(), 5)):
        assert batch.number == number
        expected = [expected_row(batches.rows, k, bare=False) for k in range(row, batch.next_row)]
        assert expected  # at least one row in each batch, otherwise the loop would not end
        ids = [token for ids, _, _ in expected for token in ids]
        assert batch.tokens == len(ids) <= tokens
        assert batch.segments is not None and batch.labels is not None
        assert batch.starts is not None and batch.positions is not None
        assert batch.ids.tolist() == ids + [PAD] * (tokens - len(ids))
        assert batch.segments.tolist()[: len(ids)] == [segment for _, kinds, _ in expected for segment in kinds]
        labels = [label for _, _, label in expected]
        assert batch.labels.tolist() == labels + [IGNORE_INDEX] * (len(batch.labels) - len(labels))
        starts = batch.starts.tolist()
        lengths = np.diff(starts).tolist()
        assert starts[0] == 0 and starts[-1] == tokens and len(lengths) == len(batch.labels)
        assert lengths[: len(expected)] == [len(ids) for ids, _, _ in expected]
        filling = [length for length in lengths[len(expected) :] if length]
        assert sum(filling) == tokens - len(ids) and max(lengths) <= batches.length
        assert lengths[len(expected) + len(filling) :] == [0] * (len(lengths) - len(expected) - len(filling))
        assert batch.positions.tolist() == [position for length in lengths for position in range(length)]
        assert batch.starts.dtype == torch.int32
        shapes.add(tuple(tensor.shape for tensor in tensors(batch).values()))
        row = batch.next_row
    assert len(shapes) == 1


@pytest.mark.parametrize("documents", [BOOK, [[2, 3]] * 300, [[1]] * 500, [[60, 60]] * 20], ids=len)
def test_there_is_little_padding(documents: list[list[int]]) -> None:
    batches = batches_of("pairs", documents=documents, row=40, tokens=2000)
    filled = [2000 - batch.tokens for batch in islice(batches.stream(), 20)]
    assert sum(filled) / len(filled) < 43


@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_does_not_depend_on_the_start(kind: str) -> None:
    batches = list(islice(batches_of(kind).stream(), 12))
    for batch, following in pairwise(batches[3:]):
        again = batches_of(kind).stream(batch.number, batches[batch.number - 1].next_row)
        assert batches_equal(next(again), batch) and batches_equal(next(again), following)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_processes_share_one_order(kind: str, world: int) -> None:
    """Process r of w takes batches r, r + w, ...: together they read the same rows in the same order."""
    ranks = [islice(batches_of(kind).stream(), rank, None, world) for rank in range(world)]
    together = [next(ranks[number % world]) for number in range(12)]
    assert all(map(batches_equal, together, batches_of(kind).stream()))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_same_order_in_micro_batches_of_any_size(kind: str) -> None:
    """So a run can resume with another number of processes at exactly the next row."""

    def rows(tokens: int) -> list[list[int]]:
        found: list[list[int]] = []
        for batch in islice(batches_of(kind, tokens=tokens).stream(), 4000 // tokens):
            starts = batch.starts
            bounds = range(0, batch.tokens + 1, batch.ids.shape[-1]) if starts is None else starts.tolist()
            count = batch.next_row - len(found)
            flat = batch.ids.flatten().tolist()
            found += [flat[bounds[row] : bounds[row + 1]] for row in range(count)]
        return found

    one, other = rows(70), rows(400)
    least = min(len(one), len(other))
    assert least > 100 and one[:least] == other[:least]


def test_a_micro_batch_without_room_for_a_row_is_refused() -> None:
    with pytest.raises(InputError, match=r"14 tokens .*one row of 15.*data\.tokens_per_micro_batch"):
        batches_of("pairs", tokens=14)
    assert next(batches_of("pairs", tokens=15).stream()).next_row > 0


def test_a_tokenizer_without_the_tokens_around_a_row_is_refused() -> None:
    from types import SimpleNamespace

    bare: Any = SimpleNamespace(cls_token_id=None, sep_token_id=None, pad_token_id=None)
    rows = TextChunks(token_stream(BOOK), tokens=12, seed=0)
    with pytest.raises(InputError, match=r"no tokens \[CLS\] and \[SEP\]"):
        MicroBatches(rows, bare, tokens=70, pairs=False)
    assert next(MicroBatches(rows, bare, tokens=70, pairs=False, bare=True).stream()).ids.shape == (5, 12)


def test_a_micro_batch_moves_to_a_device() -> None:
    batch = next(batches_of("pairs").stream())
    moved = batch.to(torch.device("meta"))
    assert (moved.number, moved.next_row, moved.tokens) == (0, batch.next_row, batch.tokens)
    assert tensors(moved).keys() == tensors(batch).keys() == {"ids", "segments", "labels", "starts", "positions"}
    assert all(tensor.device.type == "meta" for tensor in tensors(moved).values())


def test_prefetch_gives_the_same_micro_batches() -> None:
    made_ahead = list(islice(prefetch(batches_of("pairs").stream()), 20))
    assert all(map(batches_equal, made_ahead, batches_of("pairs").stream()))


def test_prefetch_ends_with_the_micro_batches() -> None:
    finite = list(islice(batches_of("pairs").stream(), 6))
    assert list(map(id, prefetch(iter(finite)))) == list(map(id, finite))


def test_prefetch_prepares_only_a_few() -> None:
    taken = []

    def counted() -> Iterator[MicroBatch]:
        for batch in batches_of("pairs").stream():
            taken.append(batch.number)
            yield batch

    batches = prefetch(counted())
    assert not taken  # nothing before the first request
    for _ in range(10):
        next(batches)
    deadline = time.monotonic() + 60
    while len(taken) < 14 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # enough time for hundreds of batches
    batches.close()
    assert len(taken) == 14


def test_prefetch_raises_errors_after_the_good_micro_batches() -> None:
    def failing() -> Iterator[MicroBatch]:
        yield from islice(batches_of("pairs").stream(), 3)
        raise OSError("the shard is gone")

    batches = prefetch(failing())
    assert [next(batches).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the shard is gone"):
        next(batches)


def test_the_thread_ends_with_the_generator() -> None:
    before = set(threading.enumerate())
    batches = prefetch(batches_of("pairs").stream())
    next(batches)
    (thread,) = set(threading.enumerate()) - before
    batches.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["single", "full pairs", "pairs"])
def test_shifted_rows_continue_the_same_rows(kind: str) -> None:
    plain = batches_of(kind)
    moved = MicroBatches(plain.rows, TOKENIZER, tokens=70, pairs=plain.pairs, shift=PositionShift(0.5, 30, seed=2))
    begins = []
    for batch in islice(moved.stream(), 40):
        assert batch.starts is not None and batch.positions is not None
        for start, stop in pairwise(batch.starts.tolist()):
            positions = batch.positions[start:stop].tolist()
            begins += positions[:1]
            assert positions == list(range(positions[0], positions[0] + stop - start)) if positions else start == 70
    assert min(begins) == 0 and 25 < max(begins) <= 30
    assert 0.3 < sum(begin > 0 for begin in begins) / len(begins) < 0.7
    assert batches_equal(moved.micro_batch(3, 9), moved.micro_batch(3, 9))
    first, same_rows = moved.micro_batch(0, 0), plain.micro_batch(0, 0)
    assert torch.equal(first.ids.flatten()[:40], same_rows.ids.flatten()[:40])


def test_a_shifted_row_of_a_model_takes_its_positions() -> None:
    """The last position is used, and none after it."""
    shift = PositionShift(1.0, 4, seed=0)
    moved = MicroBatches(batches_of("single").rows, TOKENIZER, tokens=70, pairs=False, shift=shift)
    highest = max(int(batch.positions.max()) for batch in islice(moved.stream(), 30) if batch.positions is not None)
    assert highest == moved.length - 1 + shift.most
