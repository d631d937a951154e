"""Windows: each token is scored once, with the documented amount of context."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regard.inference.causal_lm import windows


@given(count=st.integers(1, 60), length=st.integers(1, 20), data=st.data())
def test_each_token_is_scored_once_with_enough_context(count: int, length: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, length))
    scored: list[int] = []
    for window in windows(count, length, stride):
        assert 0 <= window.start <= window.scored < window.end <= count
        assert window.end - window.start <= length
        for position in range(window.scored, window.end):
            assert position - window.start + 1 >= min(position + 1, length - stride + 1)
        scored += range(window.scored, window.end)
    assert scored == list(range(count))


def test_no_window_is_redundant() -> None:
    assert list(windows(10, 4, 3)) == [(0, 0, 4), (3, 4, 7), (6, 7, 10)]
    assert list(windows(4, 4, 1)) == [(0, 0, 4)]
