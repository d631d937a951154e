"""Equality of examples, and leakage between files."""

from __future__ import annotations

import numpy as np

from regard.data.examples import (
    ChoiceExample,
    Example,
    ImageExample,
    QuestionExample,
    TaggedExample,
    TextExample,
    example_key,
    leakage_key,
)


def image_example(*pixels: int, shape: tuple[int, ...] = (2, 2)) -> ImageExample:
    return ImageExample(np.array(pixels, dtype=np.uint8).reshape(shape))


def test_equal_examples() -> None:
    same: list[tuple[Example, Example]] = [
        (TextExample("A  film", None, "x"), TextExample(" a Film", None, "y")),
        (TextExample("a", "B"), TextExample("A", " b")),
        (TaggedExample("A b", ((0, 1), (2, 3))), TaggedExample("a  B", ((0, 1), (3, 4)))),
        (ChoiceExample("a", ("b", "C"), 0), ChoiceExample("A", ("c", "B"), 1)),
        (QuestionExample("1", "who?", "He."), QuestionExample("2", "Who?", "he.")),
        (image_example(1, 2, 3, 4), image_example(1, 2, 3, 4)),
    ]
    for one, other in same:
        assert example_key(one) == example_key(other) and leakage_key(one) == leakage_key(other)


def test_different_examples() -> None:
    different: list[tuple[Example, Example]] = [
        (TextExample("a b"), TextExample("ab")),
        (TextExample("a", "b"), TextExample("b", "a")),
        (TextExample("a"), TextExample("a", "")),
        (ChoiceExample("a", ("b", "c")), ChoiceExample("a", ("b", "d"))),
        (image_example(1, 2, 3, 4), image_example(1, 2, 3, 5)),
        (image_example(1, 2, 3, 4), image_example(1, 2, 3, 4, shape=(4, 1))),
    ]
    for one, other in different:
        assert example_key(one) != example_key(other) and leakage_key(one) != leakage_key(other)
    ask, other_ask = QuestionExample("1", "who?", "He."), QuestionExample("1", "when?", "He.")
    assert example_key(ask) != example_key(other_ask) and leakage_key(ask) == leakage_key(other_ask)
