"""Checks of the examples alone: leakage, class imbalance, label noise and wrong columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from regard.data.examples import (
    ChoiceExample,
    Example,
    ImageExample,
    QuestionExample,
    TaggedExample,
    TextExample,
    example_key,
    is_labeled,
    leakage_key,
    normalize_text,
)
from regard.data.readers import ExampleSet
from regard.training.doctor.findings import DoctorFinding, skipped

LEAK, LEAK_ERROR = 0.01, 0.1  # share of the evaluation texts: 1% can change a score by a point, 10% make it useless
RARE = 0.1  # relative to the share of a class if all were equally frequent: 5% of two classes
NOISE = 0.01  # share of the examples: a few equal texts with different labels are normal in annotated data
APART = 0.5  # numbers of equal texts are different if they are this many standard deviations apart


def leakage(train: ExampleSet[Any], data: ExampleSet[Any]) -> DoctorFinding:
    """How many evaluation texts are in the training data, ignoring case and whitespace."""
    check = "train/dev leakage"
    known = {leakage_key(example) for example in train.examples}
    shared = [index for index, example in enumerate(data.examples) if leakage_key(example) in known]
    share = len(shared) / len(data.examples)
    first = data.examples[0]
    what = (
        "contexts" if isinstance(first, QuestionExample) else "images" if isinstance(first, ImageExample) else "texts"
    )
    evidence = f"{len(shared):,} of {len(data.examples):,} {what} ({share:.1%}) are in {train.path} too"
    if share < LEAK:
        return DoctorFinding(check, "ok", evidence)
    evidence += f", such as {shortened(_text(data.examples[shared[0]]))} on {data.location(shared[0])}"
    remedy = f"remove them from one of the files; --split keeps equal {what} in the same part"
    return DoctorFinding(check, "error" if share >= LEAK_ERROR else "warning", evidence, remedy)


def class_imbalance(read: ExampleSet[Any]) -> DoctorFinding:
    """Whether a class is so rare that a model can ignore it and still score well."""
    check = "class imbalance"
    examples = [example for example in read.examples if is_labeled(example)]
    counts = Counter(name for example in examples for name in classes(example))
    if not counts:
        return skipped(check, "there are no classes, only numbers or no labels")
    several = any(isinstance(example, TextExample) and isinstance(example.label, tuple) for example in examples)
    if len(counts) == 1 and not several:
        name, count = next(iter(counts.items()))
        # A single type of entity, or an answer to every question, is normal.
        normal = not isinstance(examples[0], TextExample | ImageExample)
        remedy = "" if normal else "add examples of another class"
        return DoctorFinding(check, "ok" if normal else "warning", f"all {count:,} labels are {name!r}", remedy)
    total = len(examples) if several else counts.total()
    rarest, count = min(counts.items(), key=lambda entry: entry[1])
    most, highest = max(counts.items(), key=lambda entry: entry[1])
    evidence = (
        f"the rarest of {len(counts)} classes is {rarest!r} with {count:,} of {total:,} ({count / total:.1%}), "
        f"the most frequent {most!r} with {highest / total:.1%}"
    )
    if count / total >= RARE / (2 if several else len(counts)):
        return DoctorFinding(check, "ok", evidence)
    remedy = "evaluate with F1 or MCC instead of accuracy; collect more examples of that class, or leave it out"
    return DoctorFinding(check, "warning", evidence, remedy)


def label_noise(read: ExampleSet[Any]) -> DoctorFinding:
    """How many examples have a duplicate with another label: no model can predict both correctly."""
    check = "label noise by duplicates"
    indices: dict[Hashable, list[int]] = {}
    for index, example in enumerate(read.examples):
        # A question may have several correct answers.
        if is_labeled(example) and not isinstance(example, QuestionExample):
            indices.setdefault(example_key(example), []).append(index)
    if not indices:
        return skipped(check, "equal texts may have several correct answers, or there are no labels")
    labels = [_label(example) for example in read.examples]
    numbers = [label for label in labels if isinstance(label, float)]
    apart = APART * statistics.pstdev(numbers) if numbers else 0.0
    unequal = [group for group in indices.values() if _differ([labels[index] for index in group], apart)]
    count, total = sum(map(len, unequal)), len(read.examples)
    evidence = f"{count:,} of {total:,} examples ({count / total:.1%}) have a duplicate with another label"
    if count < NOISE * total:
        return DoctorFinding(check, "ok", evidence)
    first = unequal[0]
    other = next(index for index in first if _differ([labels[first[0]], labels[index]], apart))
    evidence += f", such as {shortened(_text(read.examples[first[0]]))} on {read.location(first[0])} and "
    evidence += read.location(other)
    return DoctorFinding(check, "warning", evidence, "inspect them, then keep one label for each or remove them")


def classes(example: Example) -> tuple[str, ...]:
    """The classes of an example, for counting."""
    if isinstance(example, TaggedExample):
        return tuple(tag[2:] for tag in example.tags or () if tag.startswith("B-"))
    if isinstance(example, QuestionExample):
        return ("an answer" if example.answerable else "no answer",)
    label = example.label
    if label is None or isinstance(label, float):
        return ()
    return label if isinstance(label, tuple) else (str(label),)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")


def shape_of(image: ImageExample) -> tuple[int, int]:
    """Height and width, in pixels."""
    return image.pixels.shape[0], image.pixels.shape[1]


def spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """At most `count` evenly spaced examples, because files are often sorted by label or length."""
    if len(examples) <= count:
        return list(examples)
    return [examples[index * len(examples) // count] for index in range(count)]


def _label(example: Example) -> Hashable:
    if isinstance(example, TaggedExample):
        return example.tags
    if isinstance(example, ChoiceExample):  # the endings may be in another order
        return None if example.label is None else normalize_text(example.endings[example.label])
    if isinstance(example, QuestionExample):
        return None
    return frozenset(example.label) if isinstance(example.label, tuple) else example.label


def _differ(labels: Sequence[Hashable], apart: float) -> bool:
    numbers = [label for label in labels if isinstance(label, float)]
    if len(numbers) == len(labels):
        return max(numbers) - min(numbers) > apart
    return len(set(labels)) > 1


def _text(example: Example) -> str:
    if isinstance(example, QuestionExample):
        return example.context
    return example.text if isinstance(example, TextExample | ChoiceExample | TaggedExample) else example.name


FEW = 20  # examples; with fewer, columns cannot be told apart
MANY = 0.5  # share of the examples: a column with more different values holds ids or texts, not classes
SAME = 0.1  # share of the examples: a column with fewer different values holds labels, not texts
HALF = 0.5  # share of texts that are numbers, or equal to their second text
SHORT = 3  # characters: the median length of suspicious texts
REMEDY = "name the columns with --columns, the text first and the label last"


def wrong_columns(reads: Sequence[ExampleSet[Any]], *, labels: Sequence[str] = ()) -> DoctorFinding:
    """The first sign of a wrong column in the files; `labels` are those of a fine-tuned model."""
    check = "wrong columns"
    for read in reads:
        for status, sign in _signs(read.examples, labels):
            return DoctorFinding(check, status, f"{read.path}: {sign} ({read.description})", REMEDY)
    if not any(isinstance(example, TextExample | TaggedExample) for read in reads for example in read.examples):
        return skipped(check, "the format of these files names the fields")
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
    unknown = sorted({name for example in examples for name in classes(example)} - known)
    if unknown:
        names = ", ".join(map(shortened, unknown[:3])) + (f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else "")
        expected = ", ".join(map(repr, labels[:5])) + (" and more" if len(labels) > 5 else "")
        yield f"the model was fine-tuned for the labels {expected}, and the file has {names}"


def _labels(texts: Sequence[TextExample]) -> Iterator[str]:
    different = {name for example in texts for name in classes(example)}
    if len(different) > MANY * len(texts):
        label = shortened(min(different))
        yield f"{len(different):,} different labels in {len(texts):,} examples look like ids or texts, such as {label}"
    numbers = {example.label for example in texts if isinstance(example.label, float)}
    whole = all(number.is_integer() for number in numbers)
    if numbers and whole and len(numbers) == len(texts) and max(numbers) - min(numbers) < 2 * len(texts):
        yield f"all {len(texts):,} labels are different whole numbers, from {min(numbers):g} to {max(numbers):g}: ids"


def _texts(texts: Sequence[TextExample]) -> Iterator[str]:
    for name, column in (
        ("", [example.text for example in texts]),
        ("second ", [example.text_pair or "" for example in texts]),
    ):
        bare = [text for text in column if text.strip() and not any(map(str.isalpha, text))]
        if len(bare) > HALF * len(texts):
            yield f"{len(bare):,} of {len(texts):,} {name}texts have no letter, such as {shortened(bare[0])}"
    different = len({example_key(example) for example in texts})
    if different < SAME * len(texts):
        yield f"only {different:,} of {len(texts):,} texts are different, such as {shortened(texts[0].text)}"
    equal = sum(example.text == example.text_pair for example in texts)
    if equal > HALF * len(texts):
        yield f"in {equal:,} of {len(texts):,} pairs both texts are the same"
