"""Whole numbers that the page sends as texts: one check, one wording."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.server.arguments import MAX_INTEGER, integer_argument


@pytest.mark.parametrize("arguments", [{}, {"beam": ""}, {"beam": "  "}])
def test_nothing_is_the_default(arguments: dict[str, str]) -> None:
    assert integer_argument(arguments, "beam", 5) == 5
    assert integer_argument(arguments, "beam", None) is None


@given(least=st.integers(0, 3), number=st.integers(0, 40), most=st.integers(3, 30))
def test_a_number_in_its_limits_is_taken_and_no_other(least: int, number: int, most: int) -> None:
    if least <= number <= most:
        assert integer_argument({"n": f" {number} "}, "n", None, least=least, most=most) == number
    else:
        with pytest.raises(InputError, match=f"^'n' should be a whole number from {least} to {most}, got '{number}'$"):
            integer_argument({"n": str(number)}, "n", None, least=least, most=most)


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "1e2", "٣", "²", "1_0", "0x1", "9" * 5000])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"from 0 to 1,000,000,000, got {value[:40]!r}")):
        integer_argument({"n": value}, "n", 7, least=0)


def test_the_largest_and_one_more() -> None:
    assert integer_argument({"n": str(MAX_INTEGER)}, "n", 1) == MAX_INTEGER
    with pytest.raises(InputError):
        integer_argument({"n": str(MAX_INTEGER + 1)}, "n", 1)


def test_a_number_of_json_is_no_text() -> None:
    with pytest.raises(InputError, match="'n' must be a text, got int"):
        integer_argument({"n": 3}, "n", 1)
