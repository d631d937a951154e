"""Frames between the server and the process of a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.server.models.messages import FrameReader, Reply, Timing, pack, pack_replies

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(VALUES, max_size=5), st.integers(1, 40))
def test_values_arrive_in_any_portions(values: list[object], size: int) -> None:
    data, reader = b"".join(map(pack, values)), FrameReader()
    received = [value for start in range(0, len(data), size) for value in reader.feed(data[start : start + size])]
    assert received == values


def test_replies_are_plain_tuples() -> None:
    replies = [Reply(1, "done", b"\0\1", Timing(0.5, 0.25, 1.0, 7)), Reply(0, "batch", (1, 2, 3))]
    (received,) = FrameReader().feed(pack_replies(replies))
    assert [Reply(*one) for one in received] == replies


def test_a_frame_that_is_too_long_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected at most"):
        FrameReader().feed(b"\xff\xff\xff\xff")
