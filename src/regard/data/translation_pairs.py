"""Reads pairs of sentences and translations, and splits them so that no sentence occurs on both sides of the split."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from regard.data.files import display_name, read_all_lines
from regard.data.readers import ExampleSet
from regard.errors import InputError, suggest
from regard.wording import is_count

Path = str | os.PathLike[str]


class TranslationPair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_translation_pairs(*files: Path, columns: str | None = None) -> ExampleSet[TranslationPair]:
    """Read pairs from a file of sources and a file of targets, line by line, or from one tab-separated table.

    `columns` names the source and target columns of a table, by number from 0 or by name in the first row ("1,0");
    default: the first two. Pairs with an empty side are dropped and counted.
    """
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files of pairs; expected SOURCE TARGET, or one table")
    if len(files) == 2:
        if columns is not None:
            raise InputError("--columns is for one table, not for two files; leave it out")
        rows, description = _read_two_files(*files), "line by line"
        first = 1
    else:
        rows, first, description = _read_table(files[0], columns or "0,1")
    name = " + ".join(display_name(file) for file in files)
    dropped: Counter[str] = Counter()
    examples, lines = [], []
    for line, row in enumerate(rows, start=first):
        pair = TranslationPair(row.source.strip(), row.target.strip())
        if pair.source and pair.target:
            examples.append(pair)
            lines.append(line)
        else:
            dropped["both sides are empty" if pair == ("", "") else "one side is empty"] += 1
    if not examples:
        raise InputError(f"{name} has no pair with text on both sides: expected at least one")
    return ExampleSet(examples, name, description, dict(dropped), lines)


def _read_two_files(source: Path, target: Path) -> list[TranslationPair]:
    sources, targets = read_all_lines(source), read_all_lines(target)
    if len(sources) != len(targets):
        shorter = min(len(sources), len(targets))
        longer = display_name(source if len(sources) > len(targets) else target)
        raise InputError(
            f"{display_name(source)} has {len(sources):,} lines and {display_name(target)} has {len(targets):,}: line "
            f"{shorter + 1:,} of {longer} has no counterpart; expected one translation per line, so find the line from "
            "which they are out of step"
        )
    return [TranslationPair(*row) for row in zip(sources, targets, strict=True)]


def _read_table(path: Path, columns: str) -> tuple[list[TranslationPair], int, str]:
    """Return the pairs, the line number of the first, and a description of the table."""
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2:
        raise InputError(f"--columns is {columns!r}; expected two, source and target, like 1,0")
    rows = [line.split("\t") for line in read_all_lines(path)]
    numbered = all(map(is_count, names))
    first = 1 if numbered else 2
    if numbered:
        source, target = (int(name) for name in names)
    else:
        header = rows.pop(0) if rows else []
        source, target = (_column_index(name, header, path) for name in names)
    pairs = []
    for line, row in enumerate(rows, start=first):
        if row == [""]:
            row = [""] * (max(source, target) + 1)
        if len(row) <= max(source, target):
            raise InputError(
                f"{display_name(path)} line {line}: expected columns {source} and {target}, separated by tabs, but "
                f"this row has {len(row)} columns; fix the row or choose others with --columns"
            )
        pairs.append(TranslationPair(row[source], row[target]))
    return pairs, first, f"tab-separated, source = column {source}, target = column {target}"


def _column_index(name: str, header: Sequence[str], path: Path) -> int:
    if name not in header:
        raise InputError(f"{display_name(path)} line 1: no column {name!r} in the first row; {suggest(name, header)}")
    return list(header).index(name)


def hold_out(
    pairs: Sequence[TranslationPair], count: int, seed: int = 0
) -> tuple[list[TranslationPair], list[TranslationPair]]:
    """Split into training pairs and `count` held-out pairs that share no source and no target with them.

    Pairs that share a source or a target, directly or through others, stay together: such groups are sampled at random,
    and a group that is larger than the remaining count is skipped. The pairs keep their order; the same seed gives the
    same split.
    """
    if not 0 < count < len(pairs):
        raise InputError(
            f"{count:,} pairs to hold out of {len(pairs):,}; expected at least 1, and fewer than there are"
        )
    groups = _groups(pairs)
    order = np.random.default_rng([seed, len(pairs)]).permutation(len(groups))
    held_out: set[int] = set()
    for number in order:
        if len(held_out) + len(groups[number]) <= count:
            held_out |= set(groups[number])
        if len(held_out) == count:
            break
    if len(held_out) < count:
        raise InputError(
            f"only {len(held_out):,} of {count:,} pairs can be held out, because the others share sentences with the "
            "training pairs; hold out fewer"
        )
    training = [pair for index, pair in enumerate(pairs) if index not in held_out]
    return training, [pairs[index] for index in sorted(held_out)]


def split_held_out(
    train: ExampleSet[TranslationPair], dev: ExampleSet[TranslationPair] | None, *, out: int = 0, seed: int = 0
) -> tuple[ExampleSet[TranslationPair], ExampleSet[TranslationPair], ExampleSet[TranslationPair] | None]:
    """Return the training, development and test pairs; the test set has `out` pairs of `train`, or is None for 0.

    Without `dev`, a tenth of `train` becomes the development set, at most 2,000 pairs. The parts taken from `train`
    share no sentence with what remains.
    """
    test = None
    if out:
        train, test = _take(train, out, seed, "for testing")
    if dev is None:
        train, dev = _take(train, min(2000, max(len(train.examples) // 10, 1)), seed, "for development")
    return train, dev, test


def _take(
    pairs: ExampleSet[TranslationPair], count: int, seed: int, purpose: str
) -> tuple[ExampleSet[TranslationPair], ExampleSet[TranslationPair]]:
    remaining, taken = hold_out(pairs.examples, count, seed)
    description = f"{pairs.description}; {count:,} held out {purpose}"
    return (
        ExampleSet(remaining, pairs.path, pairs.description, pairs.dropped),
        ExampleSet(taken, pairs.path, description),
    )


def _groups(pairs: Sequence[TranslationPair]) -> list[list[int]]:
    """Return the indices of each connected group of pairs (union-find)."""
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first_index: dict[tuple[int, str], int] = {}
    for index, pair in enumerate(pairs):
        for side, text in enumerate(pair):
            other = first_index.setdefault((side, text), index)
            low, high = sorted((root(other), root(index)))
            parent[high] = low
    groups: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


def pairs_digest(pairs: Iterable[TranslationPair]) -> str:
    """Return a hash of the pairs in their order."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(tuple(pair)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
