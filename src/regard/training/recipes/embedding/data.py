"""Rows of texts to train embeddings on: read from a file, tokenized once into flat arrays, and packed into batches."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.labels import is_missing
from regard.data.readers.roles import columns_of, decide, header_of, numbered, renamed_columns
from regard.data.readers.tables import PAIRS, SAMPLE, SCORES, Table, TableOptions, column_index, fold, open_table
from regard.data.readers.texts import SKIP_HINT
from regard.data.rows import RowSource, open_rows
from regard.errors import InputError
from regard.events import Progress
from regard.text import Tokenizer
from regard.training.events import Events

Kind = Literal["texts", "pairs", "triplets", "scored pairs"]
Ids = NDArray[Any]  # uint16 or int32
KINDS: dict[int, Kind] = {1: "texts", 2: "pairs", 3: "triplets"}  # by the number of columns of texts
NAMES = (  # of columns of texts, in headers
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("query", "answer"),
    ("anchor", "positive"),
    ("query", "positive"),
    *PAIRS,
)
CHUNK = 1 << 15  # texts that are tokenized at once
EXPECTED = (
    "expected pairs (two columns of texts), triplets (anchor, positive, negative), or scored pairs (two columns of "
    "texts and one of numbers)"
)


@dataclass(frozen=True, eq=False)
class TextRows:
    """Columns of texts of equal length, and the score of each row for scored pairs."""

    columns: tuple[list[str], ...]
    scores: list[float] | None = None
    path: str = ""
    description: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows that were left out, by reason

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def kind(self) -> Kind:
        return "scored pairs" if self.scores is not None else KINDS[len(self.columns)]

    def split(self, count: int) -> tuple[TextRows, TextRows]:
        """The rows without every `count`-th one, and these; equal pairs stay together."""
        first: dict[tuple[str, ...], int] = {}
        owner = [first.setdefault(row, index) for index, row in enumerate(zip(*self.columns, strict=True))]
        parts = []
        for name, held in (("train", False), ("dev", True)):
            rows = [index for index in range(len(self)) if (owner[index] % count == count - 1) == held]
            columns = tuple([column[index] for index in rows] for column in self.columns)
            scores = None if self.scores is None else [self.scores[index] for index in rows]
            how = f"{self.description}; {name} part, as no --dev is given"
            parts.append(replace(self, columns=columns, scores=scores, description=how))
        return parts[0], replace(parts[1], dropped={})

    def digest(self) -> str:
        """A hash of the rows in their order."""
        result = hashlib.sha256()
        for column in self.columns:
            for text in column:
                result.update(text.encode("utf-8", "surrogatepass") + b"\0")
        if self.scores is not None:
            result.update(np.array(self.scores).tobytes())
        return result.hexdigest()[:16]


def read_texts(source: RowSource, table: TableOptions | None = None) -> TextRows:
    """Read one text per row: a file, or texts. Rows without a text are refused, or left out with `missing` "skip"."""
    options = table or TableOptions()
    reader = open_rows(source, options)
    texts = [row.texts[0] or "" for row in reader.read(options.missing or "error")]
    if not texts:
        raise InputError(f"{reader.name} has no texts: expected at least one per line")
    return TextRows((texts,), None, reader.name, reader.description, _dropped(reader.num_missing))


def _dropped(count: int) -> dict[str, int]:
    return {"a text is missing": count} if count else {}


def read_text_rows(path: str | os.PathLike[str], table: TableOptions | None = None) -> TextRows:
    """Read pairs, triplets or scored pairs from a file.

    The columns of `table` are names or numbers from 0: the texts, then the score. Otherwise they follow from the names
    in the header, or from what the columns hold. Rows without a text are refused, or left out with `missing` "skip".
    """
    options = table or TableOptions()
    columns = options.columns
    content = open_table(path, options)
    names, first = header_of(content, columns, options.header, known=NAMES)
    if first >= len(content.rows):
        raise InputError(f"{content.name} has a header and no rows: {EXPECTED}")
    texts, score = _roles(content, names, first, columns)
    rows, scores, blank = [], [], 0
    for row in range(first, len(content.rows)):
        cells = content.rows[row]
        if len(cells) <= max(*texts, score or 0):
            raise InputError(
                f"{content.location(row)}: expected column {max(*texts, score or 0)}, but this row has {len(cells)} "
                "columns; fix the row or choose other --columns"
            )
        found = ["" if cells[index] is None else str(cells[index]) for index in texts]
        if any(is_missing(cells[index]) for index in texts):
            if options.missing != "skip":
                raise InputError(f"{content.location(row)} has no text in one of its columns; {SKIP_HINT}")
            blank += 1
            continue
        rows.append(found)
        if score is not None:
            scores.append(_number(content, row, score))
    if not rows:
        raise InputError(f"{content.name} has no row with all texts: {EXPECTED}")

    def name(index: int) -> str:
        return names[index] if names and index < len(names) else f"column {index}"

    roles = ("anchor", "positive", "negative") if score is None else ("first", "second")
    parts = [content.description, *(f"{role} = {name(index)}" for role, index in zip(roles, texts, strict=False))]
    parts += [] if score is None else [f"score = {name(score)}"]
    parts += renamed_columns(content, names)
    return TextRows(
        tuple(list(column) for column in zip(*rows, strict=True)),
        scores if score is not None else None,
        content.name,
        ", ".join(parts),
        _dropped(blank),
    )


def _roles(
    table: Table, names: list[str] | None, first: int, columns: Sequence[str] | None
) -> tuple[tuple[int, ...], int | None]:
    """The columns of the texts, and that of the score, if there is one."""
    folded = [fold(name) for name in names or ()]
    if columns is not None:
        chosen = [column_index(table, names, column) for column in columns]
        if len(chosen) not in (2, 3) or len(set(chosen)) < len(chosen):
            raise InputError(f"--columns is {','.join(columns)}: {EXPECTED}")
        return _split_score(table, first, chosen)
    for known in NAMES:
        if set(known) <= set(folded):
            score = next((folded.index(name) for name in SCORES if name in folded), None) if len(known) == 2 else None
            return tuple(folded.index(name) for name in known), score
    width = len(table.rows[first])
    if width in (2, 3):
        return _split_score(table, first, list(range(width)))
    try:
        roles = decide(table, task="regress", columns=None, header=names is not None, labeled=True)
        if len(roles.texts) == 2 and len(roles.labels) == 1:
            return roles.texts, roles.labels[0]
    except InputError:
        pass
    raise InputError(
        f"{table.name}: cannot tell which columns to use; {EXPECTED}; {numbered(table, names, first)}; name them with "
        "--columns, such as --columns 0,1"
    )


def _split_score(table: Table, first: int, chosen: list[int]) -> tuple[tuple[int, ...], int | None]:
    """Of three columns, one of numbers is the score."""
    sample = [
        [row[index] if index < len(row) else "" for index in chosen] for row in table.rows[first : first + SAMPLE]
    ]
    numbers = [chosen[column.index] for column in columns_of(sample) if column.numbers]
    score = numbers[0] if len(chosen) == 3 and len(numbers) == 1 else None
    return tuple(index for index in chosen if index != score), score


def _number(table: Table, row: int, index: int) -> float:
    cell = table.rows[row][index]
    try:
        number = float(str(cell))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{table.location(row)}: the score should be a number, got {cell!r}; fix the row")
    return number


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """The ids of many texts, one after the other; text i has `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def tokenize(
    texts: Sequence[str], tokenizer: Tokenizer, *, max_length: int | None, stage: str = "tokenizing"
) -> Events[TokenizedTexts]:
    """Tokenize texts, cut to `max_length` tokens."""
    dtype = np.uint16 if tokenizer.size <= 1 << 16 else np.int32
    parts: list[Ids] = []
    lengths: list[int] = []
    for start in range(0, len(texts), CHUNK):
        ids, _ = tokenizer.ids_batch(texts[start : start + CHUNK], max_length=max_length)
        sizes = list(map(len, ids))
        if not all(sizes):
            raise InputError(f"{texts[start + sizes.index(0)][:40]!r} has no tokens for this model; leave it out")
        parts.append(np.fromiter(chain.from_iterable(ids), dtype=dtype, count=sum(sizes)))
        lengths += sizes
        yield Progress(stage=stage, done=len(lengths), total=len(texts))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, dtype=np.int64))])
    return TokenizedTexts(np.concatenate(parts), offsets)


@dataclass(frozen=True, eq=False)
class EmbeddingDataset:
    """Tokenized rows with what their vectors are compared with: scores, or a teacher's vectors.

    `keys` has a number per column and row that is the same for equal texts.
    """

    columns: tuple[TokenizedTexts, ...]
    scores: NDArray[np.float32] | None = None
    targets: NDArray[np.float16] | None = None
    keys: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, over all columns."""
        total: NDArray[np.int64] = np.sum([column.lengths for column in self.columns], axis=0)
        return total


def text_keys(columns: Iterable[Sequence[str]]) -> NDArray[np.int64]:
    """A number for each text, (columns, rows), the same for equal texts."""
    numbers: dict[str, int] = {}
    return np.array([[numbers.setdefault(text, len(numbers)) for text in column] for column in columns])


def pack(
    columns: Sequence[TokenizedTexts], rows: NDArray[np.int64], *, capacity: int = 0, max_length: int
) -> dict[str, Tensor]:
    """The inputs of the objective: the texts of some rows, packed column by column without padding between them.

    With a `capacity` the tokens are padded at the end up to it, as rows that belong to no text, so that all batches
    have the same shape. `owner` has the index of each token's text: shorter texts come first in the packed batch.
    """
    begins = np.concatenate([column.offsets[rows] for column in columns])
    lengths = np.concatenate([column.offsets[rows + 1] for column in columns]) - begins
    number = np.repeat(np.arange(len(columns)), len(rows))
    order = np.argsort(lengths, kind="stable")
    sizes = lengths[order]
    ends = np.cumsum(sizes)
    tokens = int(ends[-1])
    within = np.arange(tokens) - np.repeat(ends - sizes, sizes)
    source = np.repeat(begins[order], sizes) + within
    owner = np.repeat(order, sizes)
    if len(columns) == 1:
        ids = columns[0].ids[source]
    else:
        ids = np.empty(tokens, dtype=np.int32)
        column_of = number[owner]
        for index, column in enumerate(columns):
            chosen = column_of == index
            ids[chosen] = column.ids[source[chosen]]
    size = max(tokens, capacity)
    starts = np.full(len(sizes) + 1, size, dtype=np.int32) if not capacity else None
    if starts is None:  # rows of padding, and empty rows up to a constant number
        padding = np.arange(tokens + max_length, size, max_length)
        starts = np.full(len(sizes) + 2 + capacity // max_length, size, dtype=np.int32)
        starts[len(sizes) + 1 : len(sizes) + 1 + len(padding)] = padding
    starts[0], starts[1 : len(sizes) + 1] = 0, ends
    return {
        "ids": _padded(ids.astype(np.int32), size),
        "starts": torch.from_numpy(starts),
        "positions": _padded(within, size, np.arange(size - tokens) % max_length),
        "owner": _padded(owner, size, np.full(size - tokens, len(lengths))),
        "lengths": torch.from_numpy(lengths),
    }


def _padded(values: NDArray[Any], size: int, rest: NDArray[Any] | None = None) -> Tensor:
    if len(values) == size:
        return torch.from_numpy(np.ascontiguousarray(values))
    rest = np.zeros(size - len(values), dtype=values.dtype) if rest is None else rest
    return torch.from_numpy(np.concatenate([values, rest.astype(values.dtype)]))
