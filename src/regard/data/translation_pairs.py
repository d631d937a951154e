"""Sentences and their translations: read from two files or one table, and cut so that nothing is on both sides."""

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

__all__ = ["TranslationPair", "hold_out", "pairs_digest", "read_translation_pairs", "split_held_out"]

Path = str | os.PathLike[str]


class TranslationPair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_translation_pairs(*files: Path, columns: str | None = None) -> ExampleSet[TranslationPair]:
    """The pairs in a file of sources and one of targets, line by line, or in one table separated by tabs.

    `columns` says which of a table's columns are source and target, by number from 0 or by their names in the first
    row: "1,0"; by default the first two. Pairs of which a side is empty are left out and counted.
    """
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files of pairs; expected SOURCE TARGET, or one table")
    if len(files) == 2:
        if columns is not None:
            raise InputError("--columns is for one table, and here are two files; leave it out")
        rows, how = _two(*files), "line by line"
        lines = list(range(1, len(rows) + 1))
    else:
        rows, lines, how = _table(files[0], columns or "0,1")
    name = " + ".join(display_name(file) for file in files)
    dropped: Counter[str] = Counter()
    examples, kept = [], []
    for line, row in zip(lines, rows, strict=True):
        pair = TranslationPair(row.source.strip(), row.target.strip())
        if pair.source and pair.target:
            examples.append(pair)
            kept.append(line)
        else:
            dropped["both sides are empty" if pair == ("", "") else "one side is empty"] += 1
    if not examples:
        raise InputError(f"{name} holds no pair with text on both sides: expected at least one")
    return ExampleSet(examples, name, how, dict(dropped), kept)


def _two(source: Path, target: Path) -> list[TranslationPair]:
    sources, targets = _lines(source), _lines(target)
    if len(sources) != len(targets):
        shorter = min(len(sources), len(targets))
        longer = display_name(source if len(sources) > len(targets) else target)
        raise InputError(
            f"{display_name(source)} has {len(sources):,} lines and {display_name(target)} has {len(targets):,}: line "
            f"{shorter + 1:,} of {longer} has no partner; expected a translation a line, so look for where they part"
        )
    return [TranslationPair(*row) for row in zip(sources, targets, strict=True)]


def _table(path: Path, columns: str) -> tuple[list[TranslationPair], list[int], str]:
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2:
        raise InputError(f"--columns is {columns!r}; expected two, source and target, like 1,0")
    rows = [line.split("\t") for line in _lines(path)]
    numbered = all(map(is_count, names))
    first = 1 if numbered else 2
    if numbered:
        source, target = (int(name) for name in names)
    else:
        head = rows.pop(0) if rows else []
        source, target = (_place(name, head, path) for name in names)
    found, lines = [], []
    for line, row in enumerate(rows, start=first):
        if row == [""]:
            row = [""] * (max(source, target) + 1)
        if len(row) <= max(source, target):
            raise InputError(
                f"{display_name(path)} line {line}: columns {source} and {target} were asked for, and this row has "
                f"{len(row)}; expected columns between tabs, so mend the row or choose others with --columns"
            )
        found.append(TranslationPair(row[source], row[target]))
        lines.append(line)
    return found, lines, f"tab-separated, source = column {source}, target = column {target}"


def _lines(path: Path) -> list[str]:
    return read_all_lines(path)


def _place(name: str, head: Sequence[str], path: Path) -> int:
    if name not in head:
        raise InputError(f"{display_name(path)} line 1: no column {name!r} in the first row; {suggest(name, head)}")
    return list(head).index(name)


def hold_out(
    pairs: Sequence[TranslationPair], count: int, seed: int = 0
) -> tuple[list[TranslationPair], list[TranslationPair]]:
    """Pairs to learn from and `count` pairs none of whose sources or targets occurs among the others.

    Pairs that share a source or a target, directly or through others, stay together: such groups are drawn by chance,
    and one that is larger than what is still missing is passed over. The order of the pairs stays; the same seed gives
    the same cut.
    """
    if not 0 < count < len(pairs):
        raise InputError(f"{count:,} pairs to hold out of {len(pairs):,}; expected at least 1, and some left to learn")
    groups = _groups(pairs)
    order = np.random.default_rng([seed, len(pairs)]).permutation(len(groups))
    out: set[int] = set()
    for number in order:
        if len(out) + len(groups[number]) <= count:
            out |= set(groups[number])
        if len(out) == count:
            break
    if len(out) < count:
        raise InputError(
            f"only {len(out):,} of {count:,} pairs can be held out without a sentence on both sides, for too many "
            "share one; hold out fewer"
        )
    learned = [pair for place, pair in enumerate(pairs) if place not in out]
    return learned, [pairs[place] for place in sorted(out)]


def split_held_out(
    train: ExampleSet[TranslationPair], dev: ExampleSet[TranslationPair] | None, *, out: int = 0, seed: int = 0
) -> tuple[ExampleSet[TranslationPair], ExampleSet[TranslationPair], ExampleSet[TranslationPair] | None]:
    """What to learn from, to judge on, and to set aside: `out` pairs of `train`, none where that is 0.

    Without `dev` a tenth of `train` is taken for it, 2,000 pairs at most. No sentence of a part that is taken occurs in
    what is left.
    """
    test = None
    if out:
        train, test = _cut(train, out, seed, "set aside")
    if dev is None:
        train, dev = _cut(train, min(2000, max(len(train.examples) // 10, 1)), seed, "to judge on")
    return train, dev, test


def _cut(
    read: ExampleSet[TranslationPair], count: int, seed: int, purpose: str
) -> tuple[ExampleSet[TranslationPair], ExampleSet[TranslationPair]]:
    kept, taken = hold_out(read.examples, count, seed)
    how = f"{read.description}; {count:,} taken out, {purpose}"
    return ExampleSet(kept, read.path, read.description, read.dropped), ExampleSet(taken, read.path, how)


def _groups(pairs: Sequence[TranslationPair]) -> list[list[int]]:
    """The places of pairs that hang together, smallest place first."""
    parent = list(range(len(pairs)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    seen: dict[tuple[int, str], int] = {}
    for place, pair in enumerate(pairs):
        for side, text in enumerate(pair):
            other = seen.setdefault((side, text), place)
            low, high = sorted((root(other), root(place)))
            parent[high] = low
    found: dict[int, list[int]] = {}
    for place in range(len(pairs)):
        found.setdefault(root(place), []).append(place)
    return list(found.values())


def pairs_digest(pairs: Iterable[TranslationPair]) -> str:
    """The same for the same pairs in the same order."""
    found = hashlib.sha256()
    for pair in pairs:
        found.update(repr(tuple(pair)).encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:16]
