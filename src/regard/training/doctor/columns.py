"""Whether the columns that were read are the texts and the labels: the shapes that give a mistake away.

Knows texts with labels, of which files have columns to confuse. Knows no file, tokenizer or model.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from regard.data.examples import TaggedExample, TextExample
from regard.data.identity import example_key
from regard.data.readers import ExampleSet
from regard.training.doctor.data import classes, shortened
from regard.training.doctor.findings import DoctorFinding, skipped

__all__ = ["wrong_columns"]

FEW = 20  # examples: with fewer, any column can look like any other
MANY = 0.5  # of the examples: more classes than that are names or texts, not classes
SAME = 0.1  # of the examples: fewer different texts than that are labels
HALF = 0.5  # of the texts, where half of them are numbers or the same as their second text
SHORT = 3  # characters: half of the texts are no longer

REMEDY = "name the columns with --columns, the text first and the label last"


def wrong_columns(reads: Sequence[ExampleSet[Any]], *, labels: Sequence[str] = ()) -> DoctorFinding:
    """The first sign of a wrong column in some files; `labels` are what a tuned model knows, where it is tuned."""
    check = "wrong columns"
    for read in reads:
        for status, sign in _signs(read.examples, labels):
            return DoctorFinding(check, status, f"{read.path}: {sign} ({read.description})", REMEDY)
    if not any(isinstance(example, TextExample | TaggedExample) for read in reads for example in read.examples):
        return skipped(check, "files of this kind name what they hold")
    return DoctorFinding(check, "ok", "; ".join(f"{read.path}: {read.description}" for read in reads))


def _signs(examples: Sequence[Any], labels: Sequence[str]) -> Iterator[tuple[Any, str]]:
    yield from (("error", sign) for sign in _unknown(examples, labels))
    texts = [example for example in examples if isinstance(example, TextExample)]
    if len(texts) < FEW:
        return
    yield from (("error", sign) for sign in (*_labels(texts), *_texts(texts)))
    middle = statistics.median(len(example.text.strip()) for example in texts)
    if middle <= SHORT:
        yield "warning", f"half of the texts have at most {middle:g} characters, such as {shortened(texts[0].text)}"


def _unknown(examples: Sequence[Any], labels: Sequence[str]) -> Iterator[str]:
    if not labels:
        return
    known = {label[2:] if isinstance(examples[0], TaggedExample) else label for label in labels}
    found = sorted({name for example in examples for name in classes(example)} - known)
    if found:
        shown = ", ".join(map(shortened, found[:3])) + (f" and {len(found) - 3:,} more" if len(found) > 3 else "")
        expected = ", ".join(map(repr, labels[:5])) + (" and more" if len(labels) > 5 else "")
        yield f"the model was tuned for the labels {expected}, and the file has {shown}"


def _labels(texts: Sequence[TextExample]) -> Iterator[str]:
    different = {name for example in texts for name in classes(example)}
    if len(different) > MANY * len(texts):
        named = shortened(min(different))
        yield f"{len(different):,} different labels in {len(texts):,} examples look like ids or texts, such as {named}"
    numbers = {example.label for example in texts if isinstance(example.label, float)}
    whole = all(number.is_integer() for number in numbers)
    if numbers and whole and len(numbers) == len(texts) and max(numbers) - min(numbers) < 2 * len(texts):
        yield f"all {len(texts):,} labels are different whole numbers, from {min(numbers):g} to {max(numbers):g}: ids"


def _texts(texts: Sequence[TextExample]) -> Iterator[str]:
    for name, column in (("", [one.text for one in texts]), ("second ", [one.text_pair or "" for one in texts])):
        bare = [text for text in column if text.strip() and not any(map(str.isalpha, text))]
        if len(bare) > HALF * len(texts):
            yield f"{len(bare):,} of {len(texts):,} {name}texts have no letter, such as {shortened(bare[0])}"
    different = len({example_key(example) for example in texts})
    if different < SAME * len(texts):
        yield f"only {different:,} of {len(texts):,} texts are different, such as {shortened(texts[0].text)}"
    equal = sum(example.text == example.text_pair for example in texts)
    if equal > HALF * len(texts):
        yield f"in {equal:,} of {len(texts):,} pairs both texts are the same"
