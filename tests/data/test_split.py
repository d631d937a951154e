"""Splitting a dataset: fractions, label proportions, duplicates, and reproducibility."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import ImageExample, QuestionExample, TaggedExample, TextExample, split_examples
from regard.data.readers import read_text_examples
from regard.errors import InputError

# For each distinct text, its number of occurrences and its label.
_TEXTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc")), min_size=30, max_size=60)


@given(_TEXTS, st.sampled_from(["80/10/10", "75/25", "50/50"]), st.integers(0, 5))
def test_every_example_is_in_one_part_with_its_duplicates(
    texts_and_labels: list[tuple[int, str]], parts: str, seed: int
) -> None:
    examples = [
        TextExample(f"text {n}", None, label)
        for time in range(3)
        for n, (times, label) in enumerate(texts_and_labels)
        if time < times
    ]
    divided = split_examples(examples, parts, seed=seed)
    assert sorted(index for part in divided for index in part) == list(range(len(examples)))
    assert all(part == sorted(part) and part for part in divided)
    texts = [{examples[index].text for index in part} for part in divided]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert divided == split_examples(examples, parts, seed=seed)


def test_fractions_are_exact_and_stratified_by_label() -> None:
    examples = [TextExample(f"text {number}", None, "spam" if number % 10 == 0 else "ham") for number in range(1000)]
    for parts, sizes in (("80/10/10", [800, 100, 100]), ("75/25", [750, 250])):
        divided = split_examples(examples, parts)
        assert [len(part) for part in divided] == sizes
        for part in divided:
            share = sum(examples[index].label == "spam" for index in part) / len(part)
            assert abs(share - 0.1) < 0.02
    assert split_examples(examples, seed=1) != split_examples(examples, seed=0)


def test_a_rare_label_is_in_the_first_part() -> None:
    examples = [TextExample(f"text {number}", None, "common") for number in range(50)]
    examples += [TextExample(f"rare {number}", None, f"label {number}") for number in range(5)]
    train = {examples[index].label for index in split_examples(examples)[0]}
    assert train == {"common", *(f"label {number}" for number in range(5))}


def test_duplicates_ignore_case_and_white_space() -> None:
    examples = [TextExample(f"text {number}", "same", "a") for number in range(40)]
    examples += [TextExample(f"TEXT \t {number} ", "Same", "a") for number in range(40)]
    for part in split_examples(examples, "50/50"):
        assert {index % 40 for index in part if index < 40} == {index % 40 for index in part if index >= 40}


def test_scores_are_stratified_by_rank() -> None:
    examples = [TextExample(f"text {number}", None, number / 10) for number in range(200)]
    for part in split_examples(examples):
        assert abs(np.mean([examples[index].label for index in part]) - 9.95) < 1.5


def test_other_examples() -> None:
    questions = [QuestionExample(str(n), f"question {n}", f"context {n // 5}") for n in range(100)]
    for part in split_examples(questions):
        assert all(count == 5 for count in Counter(questions[index].context for index in part).values())
    tagged = [TaggedExample(f"a {n}", ((0, 1),), ("B-PER" if n % 4 == 0 else "O",)) for n in range(100)]
    assert [len(part) for part in split_examples(tagged)] == [80, 10, 10]
    images = [ImageExample(np.full((2, 2), n // 2, dtype=np.uint8), str(n % 3)) for n in range(100)]
    for part in split_examples(images):
        assert {index // 2 for index in part if index % 2} == {index // 2 for index in part if index % 2 == 0}


def test_sms_spam(shared_data: Callable[[str], Path]) -> None:
    examples = read_text_examples(shared_data("sms-spam/SMSSpamCollection"), task="classify").examples
    divided = split_examples(examples)
    assert [len(part) for part in divided] == pytest.approx([4459, 557, 557], abs=3)
    for part in divided:
        assert sum(examples[index].label == "spam" for index in part) / len(part) == pytest.approx(0.134, abs=0.005)


@pytest.mark.parametrize("parts", ["80", "80/10", "80/10/5/5", "a/b", "100/0", "-10/110", "", "nan/50"])
def test_invalid_parts_are_rejected(parts: str) -> None:
    with pytest.raises(InputError, match=f"add up to 100, such as 80/10/10, got {parts!r}"):
        split_examples([TextExample(str(number)) for number in range(10)], parts)


def test_too_few_examples_are_rejected() -> None:
    with pytest.raises(InputError, match=r"5 examples, 1 of .*different, .*3 parts"):
        split_examples([TextExample("same")] * 5)
    with pytest.raises(InputError, match="of the split"):
        split_examples([TextExample(str(number), None, str(number)) for number in range(4)])
