"""Signs of a wrong column, and unusual but correct columns."""

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
        ([replace(one, label=f"id-{index}") for index, one in enumerate(TEXTS)], "40 different labels in 40 examples"),
        (
            [replace(one, label=f"id-{index % 21}") for index, one in enumerate(TEXTS)],
            "21 different labels in 40 examples",
        ),
        ([TextExample(str(one.label), None, one.text) for one in TEXTS], "40 different labels in 40 examples"),
        ([replace(one, label=float(index + 7)) for index, one in enumerate(TEXTS)], "from 7 to 46: ids"),
        ([replace(one, text=str(index)) for index, one in enumerate(TEXTS)], "40 of 40 texts have no letter, such as"),
        (
            [replace(one, text_pair=f"{index}") for index, one in enumerate(PAIRS)],
            "40 of 40 second texts have no letter",
        ),
        ([replace(one, text=f"of the {index % 2} kind") for index, one in enumerate(TEXTS)], "only 2 of 40 texts"),
        ([replace(one, text_pair=one.text) for one in PAIRS], "in 40 of 40 pairs both texts are the same"),
    ],
)
def test_signs_of_a_wrong_column(examples: list[TextExample], sign: str) -> None:
    found = wrong_columns([read_of(TEXTS, "good.tsv"), read_of(examples, "bad.tsv")])
    assert found.status == "error"
    assert found.evidence.startswith("bad.tsv: ")
    assert sign in found.evidence
    assert found.evidence.endswith(
        "(tab-separated, header, text = text, label = label)"
    )  # the columns detected by the reader
    assert wrong_columns([read_of(examples[:19])]).status == "ok"  # too few examples to decide


def test_very_short_texts_are_a_warning() -> None:
    found = wrong_columns([read_of([TextExample(f"{chr(97 + index % 26)}{index}", None, "x") for index in range(40)])])
    assert (found.status, "half of the texts have at most 3 characters" in found.evidence) == ("warning", True)


@pytest.mark.parametrize(
    "examples",
    [
        TEXTS,
        PAIRS,
        [replace(one, label=f"intent {index % 20}") for index, one in enumerate(TEXTS)],  # two of each class
        [replace(one, label=1.0 + index) for index, one in enumerate([*TEXTS, *TEXTS[:1]]) if index != 3],
        [replace(one, label=index * 1000.0) for index, one in enumerate(TEXTS)],  # prices
        [replace(one, label=index / 10) for index, one in enumerate(TEXTS)],
        [replace(one, text_pair=one.text if index < 20 else "other") for index, one in enumerate(PAIRS)],
        [replace(one, text=f"你好吗我很好{index}") for index, one in enumerate(TEXTS)],
        [*(replace(one, text=f"{index}") for index, one in enumerate(TEXTS[:20])), *TEXTS[20:]],
    ],
)
def test_unusual_but_correct_columns(examples: list[TextExample]) -> None:
    if examples[0].label == 1.0:
        examples = [*examples, replace(examples[0], text="a twin")]  # the same number twice, so these are not ids
    assert wrong_columns([read_of(examples)]).status == "ok"


def test_labels_unknown_to_a_fine_tuned_model() -> None:
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
