"""The examples of each task: texts, text pairs, multiple choice, tagged words, questions, images.

A label that is None or empty is unknown, as in the input of a prediction.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from regard.errors import InputError

_BINS = 10  # quantile bins for scores


@dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts. A multi-label example has a tuple of labels, which may be empty."""

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A text and its possible endings; `label` is the index of the correct one."""

    text: str
    endings: tuple[str, ...]
    label: int | None = None


@dataclass(frozen=True)
class TaggedExample:
    """A text with tagged words. `words` are [start, end) in characters; `tags` are IOB2: B-PER, I-PER, O."""

    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """An answer: `text` starts at character `start` of the context."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A question about a context. `answers` are all reference answers; `answerable` is False if there is none."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    answerable: bool = True


@dataclass(frozen=True, eq=False)
class ImageExample:
    """An image with pixels from 0 to 255: (height, width) in gray, or (height, width, 3)."""

    pixels: npt.NDArray[np.uint8] = field(repr=False)
    label: str | None = None
    name: str = ""


Example = TextExample | ChoiceExample | TaggedExample | QuestionExample | ImageExample


def is_labeled(example: Example) -> bool:
    if isinstance(example, QuestionExample):
        return bool(example.answers) or not example.answerable
    return (example.tags if isinstance(example, TaggedExample) else example.label) is not None


def without_label(example: Example) -> Example:
    if isinstance(example, QuestionExample):
        return replace(example, answers=(), answerable=True)
    return replace(example, tags=None) if isinstance(example, TaggedExample) else replace(example, label=None)


def example_values(example: Example) -> dict[str, object]:
    """The input of an example by name, as a table would hold it."""
    match example:
        case TextExample(text, None) | TaggedExample(text):
            return {"text": text}
        case TextExample(text, second):
            return {"text_a": text, "text_b": second}
        case QuestionExample(id, question, context):
            return {"id": id, "question": question, "context": context}
        case ChoiceExample(text, endings):
            return {"text": text, "endings": list(endings)}
        case ImageExample(name=name):
            return {"image": name}


def example_key(example: Example) -> Hashable:
    """Return a key that is equal for examples with the same input."""
    if isinstance(example, ImageExample):
        return example.pixels.shape, example.pixels.tobytes()
    if isinstance(example, QuestionExample):
        return normalize_text(example.question), normalize_text(example.context)
    if isinstance(example, ChoiceExample):
        return normalize_text(example.text), frozenset(map(normalize_text, example.endings))
    second = example.text_pair if isinstance(example, TextExample) else None
    return normalize_text(example.text), None if second is None else normalize_text(second)


def leakage_key(example: Example) -> Hashable:
    """Return a key that training and evaluation data must not share: the context of a question, else `example_key`."""
    return normalize_text(example.context) if isinstance(example, QuestionExample) else example_key(example)


def normalize_text(text: str) -> str:
    return " ".join(text.casefold().split())


def split_examples(examples: Sequence[Example], parts: str = "80/10/10", *, seed: int = 0) -> list[list[int]]:
    """Return the indices of the examples in each part, in their original order; `parts` are 2 or 3 percentages.

    The split is stratified by label, and the first part has every label. Examples with the same text (ignoring case and
    whitespace), questions about the same context, and equal images go to the same part.
    """
    fractions, groups = _fractions(parts), _groups(examples)
    different = sum(map(len, groups))
    if different < len(fractions):
        raise InputError(
            f"{len(examples)} examples, {different} of them different, cannot be split into {len(fractions)} parts; "
            "give more examples or separate files"
        )
    return _assign(groups, fractions, seed)


def split_folds(examples: Sequence[Example], count: int) -> list[list[int]]:
    """Return the indices of the examples in each fold of a cross-validation, as `split_examples` splits.

    There are fewer folds if there are fewer different texts.
    """
    groups = _groups(examples)
    generator, number = random.Random(0), 0
    folds: list[list[int]] = [[] for _ in range(min(count, sum(map(len, groups))))]
    for stratum in groups:
        generator.shuffle(stratum)
        for group in stratum:
            folds[number % len(folds)].extend(group)
            number += 1
    return [sorted(fold) for fold in folds]


def _groups(examples: Sequence[Example]) -> list[list[list[int]]]:
    """The groups of examples that stay together, by the stratum of most of their examples."""
    strata = _strata(examples)
    groups: dict[Hashable, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(leakage_key(example), []).append(index)
    by_stratum: dict[Hashable, list[list[int]]] = {}
    for group in groups.values():
        label = Counter(strata[index] for index in group).most_common(1)[0][0]
        by_stratum.setdefault(label, []).append(group)
    return list(by_stratum.values())


def _assign(strata: list[list[list[int]]], fractions: list[float], seed: int) -> list[list[int]]:
    """Assign each group to the part that is furthest below its size; the first group of a stratum to the first part."""
    generator = random.Random(seed)
    parts: list[list[int]] = [[] for _ in fractions]
    assigned = 0
    for groups in strata:
        generator.shuffle(groups)
        for number, group in enumerate(groups):
            assigned += len(group)
            missing = [fraction * assigned - len(part) for fraction, part in zip(fractions, parts, strict=True)]
            parts[0 if number == 0 else missing.index(max(missing))].extend(group)
    for index, part in enumerate(parts):
        if not part:
            raise InputError(
                f"with {assigned} examples, part {index + 1} of the split ({fractions[index]:.0%}) is empty; "
                "give more examples or a larger part"
            )
    return [sorted(part) for part in parts]


def _fractions(parts: str) -> list[float]:
    try:
        percentages = [float(part) for part in parts.split("/")]
    except ValueError:
        percentages = []
    in_range = all(0 < percentage < 100 for percentage in percentages)
    if len(percentages) not in (2, 3) or not in_range or abs(sum(percentages) - 100) > 1e-6:
        raise InputError(f"the split should be 2 or 3 percentages that add up to 100, such as 80/10/10, got {parts!r}")
    return [percentage / 100 for percentage in percentages]


def _strata(examples: Sequence[Example]) -> list[Hashable]:
    scores = sorted(e.label for e in examples if isinstance(e, TextExample) and isinstance(e.label, float))
    edges = [scores[len(scores) * number // _BINS] for number in range(1, _BINS)] if scores else []
    return [_stratum(example, edges) for example in examples]


def _stratum(example: Example, edges: list[float]) -> Hashable:
    if isinstance(example, TaggedExample):
        return frozenset(tag[2:] for tag in example.tags or () if tag != "O")
    if isinstance(example, QuestionExample):
        return example.answerable
    label = example.label
    return sum(label >= edge for edge in edges) if isinstance(label, float) else label
