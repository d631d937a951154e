"""Positional encodings: both layouts against the formula, and the learned encodings of a model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.interpret.figure.figure import model_positional_encoding, positional_encoding
from tests.interpret.conftest import Both
from tests.interpret.figure.conftest import FigureCase


@given(st.integers(1, 64).map(lambda half: 2 * half), st.integers(1, 60), st.data())
def test_both_layouts_follow_the_formula(width: int, count: int, data: st.DataObject) -> None:
    t, k = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, width // 2 - 1))
    angle = t / 10000 ** (2 * k / width)
    interleaved, halves = positional_encoding(width, count).matrix, positional_encoding(width, count, "halves").matrix
    assert interleaved.shape == halves.shape == (count, width)
    assert interleaved[t, 2 * k] == pytest.approx(math.sin(angle), abs=1e-5)
    assert interleaved[t, 2 * k + 1] == pytest.approx(math.cos(angle), abs=1e-5)
    assert np.array_equal(halves, np.concatenate([interleaved[:, 0::2], interleaved[:, 1::2]], axis=1))


def test_encoding_of_a_model(case: FigureCase, gpt: Both) -> None:
    found = model_positional_encoding(case.model, 10)
    assert found is not None
    if case.kind in ("post", "pre"):
        assert found.arrangement == "interleaved"
        assert np.array_equal(found.matrix, positional_encoding(16, 10).matrix)
    else:
        assert found.arrangement is None
        weight = case.model.embedding.positions.weight  # type: ignore[union-attr]
        assert np.array_equal(found.matrix, weight[:10].detach().numpy())  # type: ignore[index]
    assert model_positional_encoding(gpt.ours, 1000).matrix.shape == (40, 24)  # type: ignore[union-attr]


@pytest.mark.parametrize(("width", "count"), [(7, 5), (0, 5), (2048, 5), (8, 0), (8, 513)])
def test_invalid_sizes_are_rejected(width: int, count: int) -> None:
    with pytest.raises(InputError, match="expected"):
        positional_encoding(width, count)
