"""Checks of the examples, at both sides of each threshold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import Answer, ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from regard.data.readers import ExampleSet
from regard.training.doctor.data import class_imbalance, example_key, label_noise, leakage, spaced
from tests.training.doctor.seeds import clean_texts, read_of

TEXTS = clean_texts(200, first=0)


@pytest.mark.parametrize(
    ("leaked", "status"), [(0, "ok"), (1, "ok"), (2, "warning"), (19, "warning"), (20, "error"), (200, "error")]
)
def test_leakage_thresholds_of_one_and_ten_percent(leaked: int, status: str) -> None:
    train = read_of(TEXTS, "train.tsv")
    dev = read_of([*TEXTS[:leaked], *clean_texts(200 - leaked, first=300)])
    found = leakage(train, dev)
    assert found.status == status
    assert found.evidence.startswith(f"{leaked} of 200 texts ({leaked / 200:.1%}) are in train.tsv too")
    assert ("on line 2" in found.evidence) == bool(found.remedy) == (status != "ok")


def test_a_pair_leaks_whole_or_not_at_all_and_a_question_by_its_context() -> None:
    pair, other = TextExample("a b", "c", "x"), TextExample("a b", "d", "x")
    assert leakage(read_of([pair]), read_of([other])).status == "ok"
    assert leakage(read_of([pair]), read_of([replace(pair, text=" A  b", label="y")])).status == "error"
    question_example = QuestionExample("1", "who?", "He did.", (Answer("He", 0),))
    found = leakage(read_of([question_example]), read_of([replace(question_example, id="2", question="what?")]))
    assert (found.status, found.evidence[:15]) == ("error", "1 of 1 contexts")


@given(st.text(), st.text(st.sampled_from(" \t\n\u00a0"), min_size=1), st.booleans())
def test_examples_that_count_as_equal(text: str, blank: str, tagged: bool) -> None:
    def make(text: str) -> Example:
        return TaggedExample(text, ()) if tagged else TextExample(text)

    assert example_key(make(text)) == example_key(make(blank + text.casefold().replace(" ", blank) + blank))
    assert example_key(make(text + "x")) != example_key(make(text))


@pytest.mark.parametrize(("rare", "status"), [(4, "warning"), (5, "ok"), (13, "ok"), (50, "ok")])
def test_two_classes_are_imbalanced_below_five_percent(rare: int, status: str) -> None:
    labels = ["spam"] * rare + ["ham"] * (100 - rare)
    found = class_imbalance(read_of([TextExample(f"text {index}", None, label) for index, label in enumerate(labels)]))
    assert found.status == status
    assert f"with {rare} of 100 ({rare:.1f}%)" in found.evidence


def test_many_classes_are_compared_with_a_uniform_distribution() -> None:
    even = [TextExample(f"text {index}", None, f"intent {index % 77}") for index in range(7700)]
    assert class_imbalance(read_of(even)).status == "ok"
    found = class_imbalance(read_of([*even, TextExample("a", None, "odd")]))
    assert found.status == "warning"
    assert "the rarest of 78 classes is 'odd' with 1 of 7,701" in found.evidence


def test_multiple_labels_are_counted_each() -> None:
    several = [TextExample(f"{index}", None, ("toxic",) if index % 4 else ("toxic", "insult")) for index in range(100)]
    assert class_imbalance(read_of(several)).status == "ok"
    found = class_imbalance(read_of([*several, TextExample("a", None, ("threat",))]))
    assert (found.status, "'threat' with 1 of 101 (1.0%)" in found.evidence) == ("warning", True)


def test_other_tasks_classes() -> None:
    tagged = [TaggedExample("a b c", ((0, 1), (2, 3), (4, 5)), ("B-PER", "I-PER", "O"))] * 100
    assert (
        class_imbalance(read_of(tagged)).evidence == "all 100 labels are 'PER'"
    )  # each entity counts once, whatever its length
    assert class_imbalance(read_of([*tagged, TaggedExample("a", ((0, 1),), ("B-LOC",))])).status == "warning"
    assert class_imbalance(read_of([TextExample("a", None, 1.5), TextExample("b", None, 2.5)])).status == "skipped"
    assert class_imbalance(read_of([TextExample("a", None, "x"), TextExample("b", None, "x")])).status == "warning"
    assert class_imbalance(read_of([TextExample("a"), TextExample("b")])).status == "skipped"


@pytest.mark.parametrize(("twins", "status"), [(0, "ok"), (1, "ok"), (2, "warning")])
def test_label_noise_threshold_of_one_percent(twins: int, status: str) -> None:
    flipped = [replace(one, text=one.text.upper(), label="other") for one in TEXTS[:twins]]
    rest = clean_texts(200 + 2 * twins, first=0)[200:]
    found = label_noise(read_of([*TEXTS, *rest, *flipped, *clean_texts(100, first=500)]))
    assert found.status == status
    assert found.evidence.startswith(f"{2 * twins} of ")


def test_duplicates_with_the_same_label_are_not_noise() -> None:
    assert label_noise(read_of(TEXTS * 2)).evidence.startswith("0 of 400 examples (0.0%)")


def test_numbers_of_duplicates_may_differ_slightly() -> None:
    scores = [TextExample(f"text {index}", None, index % 6.0) for index in range(60)]  # their standard deviation is 1.7
    assert label_noise(read_of([*scores, TextExample("text 2", None, 2.8)])).status == "ok"
    assert label_noise(read_of([*scores, TextExample("text 2", None, 3.0)])).status == "warning"


def test_endings_may_be_in_another_order() -> None:
    one, turned = ChoiceExample("so", ("a", "b"), 0), ChoiceExample("so", ("b", "a"), 1)
    assert label_noise(read_of([one, turned])).status == "ok"
    assert label_noise(read_of([one, replace(turned, label=0)])).status == "warning"


def test_noise_of_tags_and_of_answers() -> None:
    tagged = TaggedExample("a b", ((0, 1), (2, 3)), ("B-PER", "O"))
    assert label_noise(read_of([tagged, replace(tagged, tags=("O", "O"))])).status == "warning"
    question_example = QuestionExample("1", "who?", "He did.", (Answer("He", 0),))
    assert (
        label_noise(read_of([question_example, replace(question_example, answers=(Answer("did", 3),))])).status
        == "skipped"
    )


def test_without_lines_indices_are_reported() -> None:
    found = label_noise(ExampleSet([TextExample("a", None, "x"), TextExample("a", None, "y")], "memory", "", {}, []))
    assert found.evidence.endswith("'a' on example 1 and example 2")


@given(st.integers(1, 300), st.integers(1, 50))
def test_a_sample_is_evenly_spaced(size: int, count: int) -> None:
    examples = [TextExample(str(index)) for index in range(size)]
    some = [int(one.text) for one in spaced(examples, count) if isinstance(one, TextExample)]
    assert len(some) == min(size, count) == len(set(some))
    assert some == sorted(some)
    assert max(b - a for a, b in zip([0, *some], [*some, size], strict=True)) <= -(-size // min(size, count))
