"""Batch layouts against reference loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.nn.masks import (
    Packed,
    Padded,
    attention_mask,
    first_token_indices,
    first_tokens,
    from_padded,
    length_groups,
    select_rows,
    to_padded,
)

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)
quick = settings(max_examples=40, deadline=None)


def test_right_padding_preserves_the_tokens(device: torch.device) -> None:
    keep = Padded.from_lengths([3, 1, 2], device=device).mask
    assert keep is not None and keep.device.type == device.type
    assert keep.tolist() == [[True, True, True], [True, False, False], [True, True, False]]


@quick
@given(LENGTHS)
def test_packed_starts_and_positions(lengths: list[int]) -> None:
    layout = Packed.from_lengths(lengths)
    starts, position_ids = [0], []
    for length in lengths:
        starts.append(starts[-1] + length)
        position_ids.extend(range(length))
    assert layout.starts.tolist() == starts
    assert layout.starts.dtype == torch.int32
    assert layout.position_ids.tolist() == position_ids
    assert layout.positions(torch.zeros(sum(lengths)), 5).tolist() == [position + 5 for position in position_ids]


@pytest.mark.parametrize("lengths", [[], [3, 0, 2], [-1]])
def test_packed_layout_rejects_empty_sequences(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Packed.from_lengths(lengths)


def test_positions_of_a_padded_batch(device: torch.device) -> None:
    ids = torch.zeros(2, 3, device=device)
    assert Padded().positions(ids).tolist() == [0, 1, 2]
    assert Padded().positions(ids, 4).tolist() == [4, 5, 6]
    start = torch.tensor([[1], [7]], device=device)
    assert Padded().positions(ids, start).tolist() == [[1, 2, 3], [7, 8, 9]]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 2, 4])
@pytest.mark.parametrize("with_padding", [False, True])
def test_allowed_is_aligned_at_the_end(device: torch.device, causal: bool, queries: int, with_padding: bool) -> None:
    """The last query is the last token: with T < S it sees the previous tokens, as in cached decoding."""
    lengths, keys = [4, 2, 3], 4
    layout = Padded.from_lengths(lengths, device=device) if with_padding else Padded()
    mask = attention_mask(layout, torch.zeros(1, device=device), queries, keys, causal=causal)
    shape = (len(lengths), 1, queries, keys)
    full = (torch.ones(shape, dtype=torch.bool) if mask is None else mask.cpu()).broadcast_to(shape)
    for b in range(len(lengths)):
        for t in range(queries):
            for s in range(keys):
                real = not with_padding or s < lengths[b]
                earlier = not causal or s <= keys - queries + t
                assert bool(full[b, 0, t, s]) == (real and earlier)


def test_no_mask_is_needed_without_padding() -> None:
    assert attention_mask(Padded(), torch.zeros(1), 3, 3, causal=False) is None
    assert attention_mask(Padded(), torch.zeros(1), 1, 3, causal=True) is None


@quick
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=10))
def test_runs_are_rectangles_that_cover_everything_in_order(pairs: list[tuple[int, int]]) -> None:
    queries, keys = Packed.from_lengths([t for t, _ in pairs]), Packed.from_lengths([s for _, s in pairs])
    tokens, others = torch.arange(sum(queries.lengths)), torch.arange(sum(keys.lengths))
    seen, looked_at, shapes = [], [], []
    for run in length_groups(queries, keys):
        seen.append(run.select_queries(tokens).flatten())
        looked_at.append(run.select_keys(others).flatten())
        shapes += [(run.queries, run.keys)] * run.count
    assert torch.equal(torch.cat(seen), tokens)
    assert torch.equal(torch.cat(looked_at), others)
    assert shapes == pairs


def test_runs_join_adjacent_sequences_of_equal_length() -> None:
    layout = Packed.from_lengths([2, 2, 3, 3, 3, 2])
    assert [run.count for run in length_groups(layout, layout)] == [2, 3, 1]


def test_runs_require_as_many_memories_as_sequences() -> None:
    with pytest.raises(ValueError):
        list(length_groups(Packed.from_lengths([1, 2]), Packed.from_lengths([1, 2, 3])))


@quick
@given(LENGTHS)
def test_padding_and_repacking_round_trip(lengths: list[int]) -> None:
    layout = Packed.from_lengths(lengths)
    x = torch.randn(sum(lengths), 3)
    rows, shape = to_padded(x, layout)
    assert rows.shape == (len(lengths), max(lengths), 3)
    assert shape.mask is not None and shape.mask.sum(1).tolist() == lengths
    assert rows[~shape.mask].abs().sum() == 0
    assert torch.equal(from_padded(rows, layout), x)
    assert torch.equal(first_tokens(x, layout), first_tokens(rows, shape))


def test_padded_batch_is_unchanged() -> None:
    x, layout = torch.randn(2, 3, 4), Padded.from_lengths([3, 2])
    rows, shape = to_padded(x, layout)
    assert rows is x and shape is layout
    assert from_padded(x, layout) is x
    assert torch.equal(first_tokens(x, layout), x[:, 0])


def packed_without_lengths(lengths: list[int], *, empty: int = 0, limit: int = 9) -> Packed:
    """A packed layout that stores its lengths only in its starts, with empty sequences at the end."""
    tight = Packed.from_lengths(lengths)
    starts = torch.cat([tight.starts, tight.starts[-1:].expand(empty)])
    return Packed(None, starts, tight.position_ids, limit)


@quick
@given(LENGTHS, st.integers(0, 3))
def test_packed_layout_reads_lengths_from_its_starts(lengths: list[int], empty: int) -> None:
    layout, tight = packed_without_lengths(lengths, empty=empty), Packed.from_lengths(lengths)
    assert layout.lengths == tight.lengths == tuple(lengths)
    x = torch.randn(sum(lengths), 3)
    assert layout.longest_sequence(x) == 9
    assert torch.equal(layout.positions(x), tight.positions(x))
    assert list(length_groups(layout, layout)) == list(length_groups(tight, tight))
    rows, shape = to_padded(x, layout)
    assert shape.mask is not None and shape.mask.sum(1).tolist() == lengths
    assert torch.equal(from_padded(rows, layout), x)


@quick
@given(LENGTHS, st.integers(0, 3))
def test_empty_sequences_at_the_end_have_a_first_vector(lengths: list[int], empty: int) -> None:
    """The vector is meaningless, but batches keep their shape."""
    x, layout = torch.randn(sum(lengths), 3), packed_without_lengths(lengths, empty=empty)
    vectors = first_tokens(x, layout)
    assert vectors.shape == (len(lengths) + empty, 3)
    assert torch.equal(vectors[: len(lengths)], first_tokens(x, Packed.from_lengths(lengths)))
    assert torch.equal(vectors[len(lengths) :], x[-1:].expand(empty, 3))


@pytest.mark.parametrize(
    "layout", [Padded(), Padded.from_lengths([3, 1]), Packed.from_lengths([3, 2, 1])], ids=["full", "padded", "packed"]
)
def test_first_token_indices_and_rows_index_the_flat_batch(layout: Padded | Packed) -> None:
    x = torch.randn(6, 4) if isinstance(layout, Packed) else torch.randn(2, 3, 4)
    indices = first_token_indices(x, layout)
    assert indices.tolist() == ([0, 3, 5] if isinstance(layout, Packed) else [0, 3])
    assert torch.equal(select_rows(x, indices), first_tokens(x, layout))
    assert torch.equal(select_rows(x, torch.tensor([4, 4])), x.reshape(6, 4)[[4, 4]])
