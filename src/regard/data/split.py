"""One file to train, develop and test with: which examples go where.

Reads no file and changes no order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence

from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample, leakage_key
from regard.errors import InputError

__all__ = ["split_examples"]

_BINS = 10  # scores are parted by their rank into so many classes


def split_examples(examples: Sequence[Example], parts: str = "80/10/10", *, seed: int = 0) -> list[list[int]]:
    """The places of the examples of each part, in the order of the file; `parts` are 2 or 3 percentages.

    Every label has about its share in each part, and the first part has every label. Examples with the same text,
    whatever its capitals and blanks, go to one part; so do questions about one context and equal pictures.
    """
    shares = _shares(parts)
    strata = _strata(examples)
    groups: dict[Hashable, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(leakage_key(example), []).append(place)
    if len(groups) < len(shares):
        raise InputError(
            f"{len(examples)} examples, {len(groups)} of them different, cannot be split into {len(shares)} parts; "
            "give more examples or separate files"
        )
    by_stratum: dict[Hashable, list[list[int]]] = {}
    for group in groups.values():
        label = Counter(strata[place] for place in group).most_common(1)[0][0]
        by_stratum.setdefault(label, []).append(group)
    return _deal(list(by_stratum.values()), shares, seed)


def _deal(strata: list[list[list[int]]], shares: list[float], seed: int) -> list[list[int]]:
    """Each group goes to the part that lacks most; what a class leaves over, the next evens out."""
    generator = random.Random(seed)
    chosen: list[list[int]] = [[] for _ in shares]
    dealt = 0
    for groups in strata:
        generator.shuffle(groups)
        for number, group in enumerate(groups):
            dealt += len(group)
            lack = [share * dealt - len(part) for share, part in zip(shares, chosen, strict=True)]
            chosen[0 if number == 0 else lack.index(max(lack))].extend(group)
    for place, part in enumerate(chosen):
        if not part:
            raise InputError(
                f"{dealt} examples leave nothing for part {place + 1} of the split, which has {shares[place]:.0%}; "
                "give more examples or a larger part"
            )
    return [sorted(part) for part in chosen]


def _shares(parts: str) -> list[float]:
    try:
        numbers = [float(part) for part in parts.split("/")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or not all(0 < number < 100 for number in numbers) or abs(sum(numbers) - 100) > 1e-6:
        raise InputError(f"the split should be 2 or 3 percentages that add up to 100, such as 80/10/10, got {parts!r}")
    return [number / 100 for number in numbers]


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
