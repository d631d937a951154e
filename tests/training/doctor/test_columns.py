"""The shapes that give a wrong column away, and shapes that look odd and are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard.data.examples import ChoiceExample, TaggedExample, TextExample
from regard.training.doctor.data import wrong_columns
from tests.training.doctor.seeds import clean_pairs, clean_texts, read_of

TEXTS, PAIRS = clean_texts(40, first=0), clean_pairs(40)


@pytest.mark.parametrize(
    ("examples", "sign"),
    [
        ([replace(one, label=f"id-{place}") for place, one in enumerate(TEXTS)], "40 different labels in 40 examples"),
        (
            [replace(one, label=f"id-{place % 21}") for place, one in enumerate(TEXTS)],
            "21 different labels in 40 examples",
        ),
        ([TextExample(str(one.label), None, one.text) for one in TEXTS], "40 different labels in 40 examples"),
        ([replace(one, label=float(place + 7)) for place, one in enumerate(TEXTS)], "from 7 to 46: ids"),
        ([replace(one, text=str(place)) for place, one in enumerate(TEXTS)], "40 of 40 texts have no letter, such as"),
        (
            [replace(one, text_pair=f"{place}") for place, one in enumerate(PAIRS)],
            "40 of 40 second texts have no letter",
        ),
        ([replace(one, text=f"of the {place % 2} kind") for place, one in enumerate(TEXTS)], "only 2 of 40 texts"),
        ([replace(one, text_pair=one.text) for one in PAIRS], "in 40 of 40 pairs both texts are the same"),
    ],
)
def test_signs_of_a_wrong_column(examples: list[TextExample], sign: str) -> None:
    found = wrong_columns([read_of(TEXTS, "good.tsv"), read_of(examples, "bad.tsv")])
    assert found.status == "error"
    assert found.evidence.startswith("bad.tsv: ")
    assert sign in found.evidence
    assert found.evidence.endswith("(tab-separated, header, text = text, label = label)")  # what the reader decided
    assert wrong_columns([read_of(examples[:19])]).status == "ok"  # too few to tell


def test_very_short_texts_are_a_warning() -> None:
    found = wrong_columns([read_of([TextExample(f"{chr(97 + place % 26)}{place}", None, "x") for place in range(40)])])
    assert (found.status, "half of the texts have at most 3 characters" in found.evidence) == ("warning", True)


@pytest.mark.parametrize(
    "examples",
    [
        TEXTS,
        PAIRS,
        [replace(one, label=f"intent {place % 20}") for place, one in enumerate(TEXTS)],  # two of each class
        [replace(one, label=1.0 + place) for place, one in enumerate([*TEXTS, *TEXTS[:1]]) if place != 3],
        [replace(one, label=place * 1000.0) for place, one in enumerate(TEXTS)],  # prices
        [replace(one, label=place / 10) for place, one in enumerate(TEXTS)],
        [replace(one, text_pair=one.text if place < 20 else "other") for place, one in enumerate(PAIRS)],
        [replace(one, text=f"你好吗我很好{place}") for place, one in enumerate(TEXTS)],
        [*(replace(one, text=f"{place}") for place, one in enumerate(TEXTS[:20])), *TEXTS[20:]],
    ],
)
def test_unusual_but_correct_columns(examples: list[TextExample]) -> None:
    if examples[0].label == 1.0:
        examples = [*examples, replace(examples[0], text="a twin")]  # the same number twice: no ids
    assert wrong_columns([read_of(examples)]).status == "ok"


def test_labels_that_a_tuned_model_does_not_know() -> None:
    read = read_of(TEXTS[:3])
    assert wrong_columns([read], labels=["neg", "pos"]).status == "ok"
    found = wrong_columns([read], labels=["0", "1"])
    assert found.status == "error"
    assert "the model was fine-tuned for the labels '0', '1', and the file has 'neg'" in found.evidence
    tagged = read_of([TaggedExample("a b", ((0, 1), (2, 3)), ("B-PER", "O"))])
    assert wrong_columns([tagged], labels=["O", "B-PER", "I-PER"]).status == "ok"
    assert wrong_columns([tagged], labels=["O", "B-LOC", "I-LOC"]).status == "error"


def test_files_without_columns_to_confuse_are_skipped() -> None:
    assert wrong_columns([read_of([ChoiceExample("a", ("b", "c"), 0)])]).status == "skipped"
