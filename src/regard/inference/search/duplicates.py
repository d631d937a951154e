"""Near-duplicates: texts whose vectors are closer than a threshold, by an exact comparison of all pairs.

Blocks of vectors are compared with blocks, so memory does not grow with the number of pairs. Texts that a chain of
pairs connects form a group; its first text represents it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from regard.errors import InputError
from regard.events import Event, Progress
from regard.inference.search.documents import IndexedText
from regard.inference.search.exact import Positions, Vectors
from regard.inference.search.index import Index
from regard.inference.search.results import one_line, with_columns
from regard.render.result import Result, Table
from regard.wording import count_of

BLOCK_SIZE = 4096
TOLERANCE = 1e-6  # two equal vectors have a cosine of almost 1
MAX_GROUPS = 20  # in the terminal


class Duplicate(BaseModel):
    """A text of a group; `score` is its cosine similarity to the first text of the group."""

    model_config = ConfigDict(frozen=True)

    id: str | int
    row: int
    score: float
    text: str
    columns: dict[str, Any]


class DuplicateGroup(BaseModel):
    """Texts that are nearly the same, in the order of their rows."""

    model_config = ConfigDict(frozen=True)

    members: list[Duplicate]


class DuplicatesResult(Result):
    """Groups of near-duplicates, the largest first. `pairs` of all texts are at least as similar as `threshold`."""

    source: str
    model: str
    threshold: float
    rows: int
    duplicates: int = Field(description="Rows that are not the first of their group.")
    pairs: int
    groups: list[DuplicateGroup]

    def to_text(self) -> str:
        cosine = f"cosine similarity of {self.threshold:g} or more"
        if not self.groups:
            return f"No near-duplicates among {count_of(self.rows, 'text')}: no two have a {cosine}."
        groups, first = count_of(len(self.groups), "group"), "the" if len(self.groups) == 1 else "each"
        lines = [
            f"{groups} of texts that say nearly the same (each has a {cosine} to another text of its group). Keeping "
            f"the first text of {first} group removes {self.duplicates:,} of {count_of(self.rows, 'text')}."
        ]
        for number, group in enumerate(self.groups[:MAX_GROUPS], 1):
            lines += ["", f"group {number}, {count_of(len(group.members), 'text')}"]
            lines += [f"  similarity  {'id':>6}  text (similarity to the first of its group)"] if number == 1 else []
            lines += [f"{one.score:12.4f}  {one.id!s:>6}  {one_line(one.text)}" for one in group.members[:5]]
            if len(group.members) > 5:
                lines.append(f"              and {len(group.members) - 5:,} more")
        if len(self.groups) > MAX_GROUPS:
            lines += ["", f"and {len(self.groups) - MAX_GROUPS:,} more groups; --output writes all of them"]
        return "\n".join(lines)

    def to_table(self) -> Table:
        rows = [
            ([number, group.members[0].id, one.score, one.id, one.row, one.text], one.columns)
            for number, group in enumerate(self.groups, 1)
            for one in group.members
        ]
        return with_columns(["group", "representative", "score", "id", "row", "text"], rows)


def find_duplicates(index: Index, *, threshold: float = 0.9) -> Generator[Event, None, DuplicatesResult]:
    """Compare all texts of an index."""
    if not -1 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; expected a cosine similarity from -1 to 1")
    positions = index.positions()
    labels, pairs = yield from connect_pairs(index, positions, threshold)
    groups = sorted(_groups(labels), key=lambda rows: (-len(rows), rows[0]))
    members = {int(row) for rows in groups for row in rows}
    documents = {row: index.document(int(positions[row])) for row in sorted(members)}
    return DuplicatesResult(
        source=index.name,
        model=index.model_name,
        threshold=threshold,
        rows=len(index),
        duplicates=sum(len(rows) - 1 for rows in groups),
        pairs=pairs,
        groups=[_group(index.vectors(positions[rows]), [documents[int(row)] for row in rows]) for rows in groups],
    )


def _group(vectors: Vectors, documents: list[IndexedText]) -> DuplicateGroup:
    scores = np.clip((vectors.astype(np.float64) * vectors[0].astype(np.float64)).sum(axis=1), -1, 1)
    members = [
        Duplicate(id=one.id, row=one.row, score=score, text=one.text, columns=one.columns)
        for one, score in zip(documents, scores.tolist(), strict=True)
    ]
    return DuplicateGroup(members=members)


def connect_pairs(
    index: Index, positions: Positions, threshold: float
) -> Generator[Event, None, tuple[NDArray[np.int64], int]]:
    """The smallest row that a chain of pairs connects with each row, and the number of pairs."""
    count = len(positions)
    labels, pairs = np.arange(count), 0
    starts = range(0, count, BLOCK_SIZE)
    done, total = 0, len(starts) * (len(starts) + 1) // 2
    for start in starts:
        rows = torch.from_numpy(index.vectors(positions[start : start + BLOCK_SIZE]))
        for other in range(start, count, BLOCK_SIZE):
            columns = rows if other == start else torch.from_numpy(index.vectors(positions[other : other + BLOCK_SIZE]))
            similar = rows @ columns.T >= threshold - TOLERANCE
            if other == start:
                similar = similar.triu(1)
            first, second = (part.numpy() for part in similar.nonzero(as_tuple=True))
            pairs += len(first)
            connect(labels, first + start, second + other)
            done += 1
            yield Progress(stage="comparing", done=done, total=total, unit="blocks")
    return labels, pairs


def connect(labels: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Join the components of pairs of rows; a label is the smallest row of its component."""
    while len(first):
        low, high = np.minimum(labels[first], labels[second]), np.maximum(labels[first], labels[second])
        open_pairs = low != high
        first, second, low, high = first[open_pairs], second[open_pairs], low[open_pairs], high[open_pairs]
        np.minimum.at(labels, high, low)
        while True:  # every label points to the smallest row directly
            shorter = labels[labels]
            if np.array_equal(shorter, labels):
                break
            labels[:] = shorter


def _groups(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The rows of components with more than one row."""
    order = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[order], return_index=True)
    return [rows for rows in np.split(order, starts[1:]) if len(rows) > 1]
