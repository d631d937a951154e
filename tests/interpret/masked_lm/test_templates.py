"""Templates, labels and captions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.interpret.masked_lm.charts import ONE_AND_TWO, caption, contrast_labels
from regard.interpret.masked_lm.predictions import parse_template


def test_slots() -> None:
    template = parse_template("In [1908|2018], [he|she] [sic] was a [MASK].")
    assert [slot.values for slot in template.slots] == [("1908", "2018"), ("he", "she")]
    assert template.sentences() == [
        "In 1908, he [sic] was a [MASK].",
        "In 1908, she [sic] was a [MASK].",
        "In 2018, he [sic] was a [MASK].",
        "In 2018, she [sic] was a [MASK].",
    ]


def test_ranges() -> None:
    (slot,) = parse_template("In [1860..2018] _").slots
    assert slot.is_range
    assert (len(slot.values), slot.values[0], slot.values[-1]) == (159, "1860", "2018")


@pytest.mark.parametrize("text", ["[2018..1860] _", "[7..7] _", "[1..9999] _", "[a|] _", "[a|a] _"])
def test_invalid_slots(text: str) -> None:
    with pytest.raises(InputError, match=r"^\["):
        parse_template(text)


@pytest.mark.parametrize("text", [f"[1..{'9' * 5000}] _", f"[{'9' * 5000}..{'9' * 4999}8] _", f"[1..{'9' * 13}] _"])
def test_too_long_numbers(text: str) -> None:
    with pytest.raises(InputError, match=r"digits; expected at most 12") as caught:
        parse_template(text)
    assert len(str(caught.value)) < 200


def test_the_longest_numbers() -> None:
    assert parse_template(f"[{10**11}..{10**11 + 1}] _").slots[0].values == ("100000000000", "100000000001")


@given(st.text())
def test_text_without_slots_is_unchanged(text: str) -> None:
    without_slots = text.replace("[", "(")
    assert parse_template(without_slots).sentences() == [without_slots]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("In Texas, they like to buy _.", "In New York, they like to buy _.", ("Texas", "New York")),
        ("Jane worked as a _.", "Jim worked as a _.", ("Jane", "Jim")),
        ("The cat sat _", "the dog sat _", ("cat", "dog")),
        ("one two _", "one two two _", ONE_AND_TWO),
        ("same _", "same _", ONE_AND_TWO),
        ("a much longer beginning than fits, _", "short, _", ONE_AND_TWO),
        ("fifteen letters", "fifteen letterz", ("letters", "letterz")),
    ],
)
def test_labels(a: str, b: str, expected: tuple[str, str]) -> None:
    assert contrast_labels(a, b) == expected


@given(st.text(), st.text())
def test_labels_fit_an_axis(a: str, b: str) -> None:
    found = contrast_labels(a, b)
    assert found == ONE_AND_TWO or all(0 < len(label) <= 15 for label in found)
    assert found == ONE_AND_TWO or (found[0] in a and found[1] in b)


def test_captions() -> None:
    assert caption("BERT", "Jane worked as a _.", ("Jane", "Jim"), ["nurse", "maid"], []) == (
        "BERT associates these jobs more with Jane than Jim: nurse, maid."
    )
    assert caption("BERT", "x _", ONE_AND_TWO, [], ["it"]) == (
        "BERT associates these words more with the second than the first sentence: it."
    )
