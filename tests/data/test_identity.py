"""When two examples are the same, and what they may not share between files."""

from __future__ import annotations

import numpy as np

from regard.data.examples import Choice, Example, Picture, Question, Tagged, Text
from regard.data.identity import identity, subject


def picture(*pixels: int, shape: tuple[int, ...] = (2, 2)) -> Picture:
    return Picture(np.array(pixels, dtype=np.uint8).reshape(shape))


def test_what_is_the_same() -> None:
    same: list[tuple[Example, Example]] = [
        (Text("A  film", None, "x"), Text(" a Film", None, "y")),
        (Text("a", "B"), Text("A", " b")),
        (Tagged("A b", ((0, 1), (2, 3))), Tagged("a  B", ((0, 1), (3, 4)))),
        (Choice("a", ("b", "C"), 0), Choice("A", ("c", "B"), 1)),
        (Question("1", "who?", "He."), Question("2", "Who?", "he.")),
        (picture(1, 2, 3, 4), picture(1, 2, 3, 4)),
    ]
    for one, other in same:
        assert identity(one) == identity(other) and subject(one) == subject(other)


def test_what_is_not() -> None:
    different: list[tuple[Example, Example]] = [
        (Text("a b"), Text("ab")),
        (Text("a", "b"), Text("b", "a")),
        (Text("a"), Text("a", "")),
        (Choice("a", ("b", "c")), Choice("a", ("b", "d"))),
        (picture(1, 2, 3, 4), picture(1, 2, 3, 5)),
        (picture(1, 2, 3, 4), picture(1, 2, 3, 4, shape=(4, 1))),
    ]
    for one, other in different:
        assert identity(one) != identity(other) and subject(one) != subject(other)
    ask, other_ask = Question("1", "who?", "He."), Question("1", "when?", "He.")
    assert identity(ask) != identity(other_ask) and subject(ask) == subject(other_ask)
