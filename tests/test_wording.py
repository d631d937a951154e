"""Numbers with singular and plural nouns."""

from __future__ import annotations

import pytest

from regard.wording import count_of


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (1001, "1,001 pairs"), (1200, "1,200 pairs")]
)
def test_a_noun_agrees_with_its_number(count: int, expected: str) -> None:
    assert count_of(count, "pair") == expected
