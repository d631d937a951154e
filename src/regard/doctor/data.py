"""Checks of examples alone: texts in two files, classes that are rare, equal texts with unequal labels.

Knows examples and where they were read. Knows no tokenizer, no model and no task.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from regard.data.examples import Choice, Example, Question, Tagged, Text, labelled
from regard.data.readers import Read
from regard.doctor.findings import Finding, skipped

__all__ = ["class_imbalance", "classes", "identity", "label_noise", "leakage", "shortened", "spaced"]

LEAK, LEAK_ERROR = 0.01, 0.1  # of the texts judged on: up to a point of score; and more than any comparison bears
RARE = 0.1  # of the share that a class would have if all were equally many: 5% of two classes
NOISE = 0.01  # of the examples: with fewer, equal texts with unequal labels are how people label
APART = 0.5  # deviations of all labels by which the numbers of equal texts must differ to be called unequal


def leakage(train: Read[Any], data: Read[Any]) -> Finding:
    """How many of the texts to judge on were learned from, whatever their capitals and blanks."""
    check = "train/dev leakage"
    known = {_learned(example) for example in train.examples}
    both = [place for place, example in enumerate(data.examples) if _learned(example) in known]
    share = len(both) / len(data.examples)
    what = "contexts" if isinstance(data.examples[0], Question) else "texts"
    evidence = f"{len(both):,} of {len(data.examples):,} {what} ({share:.1%}) are in {train.path} too"
    if share < LEAK:
        return Finding(check, "ok", evidence)
    example = data.examples[both[0]]
    said = f"{evidence}, such as {shortened(_text(example))} on {_line(data, both[0])}"
    remedy = "take them out of one of the files; --split keeps equal texts on one side"
    return Finding(check, "error" if share >= LEAK_ERROR else "warning", said, remedy)


def class_imbalance(read: Read[Any]) -> Finding:
    """Whether a class is so rare that a model may leave it out and still score well."""
    check = "class imbalance"
    examples = [example for example in read.examples if labelled(example)]
    counts = Counter(name for example in examples for name in classes(example))
    if not counts:
        return skipped(check, "there are no classes, only numbers or no labels")
    several = any(isinstance(example, Text) and isinstance(example.label, tuple) for example in examples)
    if len(counts) == 1 and not several:
        name, count = next(iter(counts.items()))
        plain = not isinstance(examples[0], Text)  # one kind of entity, or an answer to every question, is a task
        remedy = "" if plain else "add examples of another class"
        return Finding(check, "ok" if plain else "warning", f"all {count:,} labels are {name!r}", remedy)
    total = len(examples) if several else counts.total()
    rarest, count = min(counts.items(), key=lambda entry: entry[1])
    most, highest = max(counts.items(), key=lambda entry: entry[1])
    evidence = (
        f"the rarest of {len(counts)} classes is {rarest!r} with {count:,} of {total:,} ({count / total:.1%}), "
        f"the most frequent {most!r} with {highest / total:.1%}"
    )
    if count / total >= RARE / (2 if several else len(counts)):
        return Finding(check, "ok", evidence)
    remedy = "judge by F1 or MCC, not by accuracy; collect more of that class, or leave it out"
    return Finding(check, "warning", evidence, remedy)


def label_noise(read: Read[Any]) -> Finding:
    """How many examples have a twin with another label: no model can be right about both."""
    check = "label noise by duplicates"
    places: dict[Hashable, list[int]] = {}
    for place, example in enumerate(read.examples):
        if labelled(example) and not isinstance(example, Question):  # of which several answers are right
            places.setdefault(identity(example), []).append(place)
    if not places:
        return skipped(check, "equal texts may have several right answers, or there are no labels")
    labels = [_label(example) for example in read.examples]
    numbers = [label for label in labels if isinstance(label, float)]
    apart = APART * statistics.pstdev(numbers) if numbers else 0.0
    unequal = [group for group in places.values() if _differ([labels[place] for place in group], apart)]
    count, total = sum(map(len, unequal)), len(read.examples)
    evidence = f"{count:,} of {total:,} examples ({count / total:.1%}) have a twin with another label"
    if count < NOISE * total:
        return Finding(check, "ok", evidence)
    first = unequal[0]
    other = next(place for place in first if _differ([labels[first[0]], labels[place]], apart))
    said = f"{evidence}, such as {shortened(_text(read.examples[first[0]]))} on {_line(read, first[0])} and "
    said += _line(read, other)
    return Finding(check, "warning", said, "look at them, then keep one label of each or leave them out")


def classes(example: Example) -> tuple[str, ...]:
    """The classes that an example counts for."""
    if isinstance(example, Tagged):
        return tuple(tag[2:] for tag in example.tags or () if tag.startswith("B-"))
    if isinstance(example, Question):
        return ("an answer" if example.possible else "no answer",)
    label = example.label
    if label is None or isinstance(label, float):
        return ()
    return label if isinstance(label, tuple) else (str(label),)


def identity(example: Example) -> Hashable:
    """What two examples share that ask the same, whatever their capitals and blanks."""
    if isinstance(example, Question):
        return _same(example.question), _same(example.context)
    if isinstance(example, Choice):
        return _same(example.text), frozenset(map(_same, example.endings))
    second = example.second if isinstance(example, Text) else None
    return _same(_text(example)), None if second is None else _same(second)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")


def spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """At most `count` examples from all over: files are often sorted by label or length."""
    if len(examples) <= count:
        return list(examples)
    return [examples[place * len(examples) // count] for place in range(count)]


def _learned(example: Example) -> Hashable:
    """What must not be in both files: of a question that is what it is about."""
    return _same(example.context) if isinstance(example, Question) else identity(example)


def _label(example: Example) -> Hashable:
    if isinstance(example, Tagged):
        return example.tags
    if isinstance(example, Choice):  # the same endings may stand in another order
        return None if example.label is None else _same(example.endings[example.label])
    if isinstance(example, Question):
        return None
    return frozenset(example.label) if isinstance(example.label, tuple) else example.label


def _differ(labels: Sequence[Hashable], apart: float) -> bool:
    numbers = [label for label in labels if isinstance(label, float)]
    if len(numbers) == len(labels):
        return max(numbers) - min(numbers) > apart
    return len(set(labels)) > 1


def _text(example: Example) -> str:
    if isinstance(example, Question):
        return example.context
    return example.text if isinstance(example, Text | Choice | Tagged) else example.name


def _line(read: Read[Any], place: int) -> str:
    return f"line {read.lines[place]:,}" if read.lines else f"place {place + 1:,}"


def _same(text: str) -> str:
    return " ".join(text.casefold().split())
