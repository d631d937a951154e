"""Reads pairs of sentences and translations, and splits them so that no sentence occurs on both sides of the split."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from regard.data.files import display_name, read_all_lines
from regard.data.readers import ExampleSet, TableOptions
from regard.data.readers.texts import SKIP_HINT
from regard.data.rows import open_rows
from regard.errors import InputError

Path = str | os.PathLike[str]


class TranslationPair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_translation_pairs(*files: Path, table: TableOptions | None = None) -> ExampleSet[TranslationPair]:
    """Read pairs from a file of sources and a file of targets, line by line, or from the columns of one table.

    `table` says how to read it: its columns are those of source and target, by default the first two. A pair with an
    empty side is an error, or left out and counted if `table.missing` is "skip"; blank lines at the end are no pairs.
    """
    table = table or TableOptions()
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files of pairs; expected SOURCE TARGET, or one table")
    name = " + ".join(display_name(file) for file in files)
    if len(files) == 2:
        if not table.infers_format:
            raise InputError("--columns and --delimiter are for one table, not for two files; leave them out")
        rows, description, unit = _read_two_files(*files, encoding=table.encoding), "line by line", "line"
    else:
        if table.columns is not None and len(table.columns) != 2:
            raise InputError(f"--columns is {','.join(table.columns)!r}; expected two, source and target, like 1,0")
        reader = open_rows(files[0], replace(table, columns=table.columns or ("0", "1")), num_texts=2)
        rows = ((row.line, row.texts[0] or "", row.texts[1] or "") for row in reader)
        description, unit = (
            reader.description.replace("text =", "source =").replace("second =", "target ="),
            reader.unit,
        )
    dropped: Counter[str] = Counter()
    examples, lines = [], []
    empty: list[tuple[int, str]] = []  # since the last pair
    for line, source, target in rows:
        pair = TranslationPair(source.strip(), target.strip())
        if pair.source and pair.target:
            dropped.update(_left_out(empty, table.missing, name, unit))
            empty = []
            examples.append(pair)
            lines.append(line)
        else:
            empty.append((line, BOTH_EMPTY if pair == ("", "") else ONE_EMPTY))
    if not examples:
        raise InputError(f"{name} has no pair with text on both sides: expected at least one")
    trailing = next((index for index, (_, reason) in reversed(list(enumerate(empty))) if reason == ONE_EMPTY), -1)
    dropped.update(_left_out(empty[: trailing + 1], table.missing, name, unit))
    return ExampleSet(examples, name, description, dict(dropped), lines, unit)


ONE_EMPTY, BOTH_EMPTY = "one side is empty", "both sides are empty"


def _left_out(empty: Sequence[tuple[int, str]], missing: str | None, name: str, unit: str) -> list[str]:
    if empty and missing != "skip":
        line, reason = empty[0]
        raise InputError(f"{name} {unit} {line}: {reason}; {SKIP_HINT}")
    return [reason for _, reason in empty]


def _read_two_files(source: Path, target: Path, *, encoding: str | None) -> Iterator[tuple[int, str, str]]:
    sources, targets = read_all_lines(source, encoding), read_all_lines(target, encoding)
    if len(sources) != len(targets):
        shorter = min(len(sources), len(targets))
        longer = display_name(source if len(sources) > len(targets) else target)
        raise InputError(
            f"{display_name(source)} has {len(sources):,} lines and {display_name(target)} has {len(targets):,}: line "
            f"{shorter + 1:,} of {longer} has no counterpart; expected one translation per line, so find the line from "
            "which they are out of step"
        )
    return ((line, *pair) for line, pair in enumerate(zip(sources, targets, strict=True), start=1))


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
