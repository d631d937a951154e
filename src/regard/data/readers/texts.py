"""Reads texts and text pairs with labels or scores from TSV, CSV, JSON lines, Parquet or plain lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.data.examples import TextExample
from regard.data.readers.columns import Roles, TextTask, decide, numbered
from regard.data.readers.read import ExampleSet, Path, example_list, kind_of
from regard.data.readers.records import refuse_halves
from regard.data.readers.tables import Table, fold, open_table
from regard.errors import InputError, check_choice

_NO_AGREEMENT = "-"  # MNLI's and SNLI's gold_label where the annotators did not agree
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}


def read_text_examples(
    path: Path,
    *,
    task: TextTask,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    quoting: bool | None = None,
    labeled: bool | None = None,
    max_line: int | None = None,
) -> ExampleSet[TextExample]:
    """Read the examples of a file; `columns` are names or numbers from 0: text, second text for a pair, label.

    `labeled`: True raises an error if there are no labels, False ignores labels, None reads them if there are any.
    Labels are strings, numbers for regress, and tuples if a JSON line has a list or `columns` names several columns of
    0 and 1. `max_line` is the maximum number of bytes in a line (default: 64 MiB).
    """
    check_choice("task", task, ("classify", "pair", "regress"))
    table = open_table(path, delimiter=delimiter, quoting=quoting, max_line=max_line)
    roles = decide(table, task=task, columns=columns, header=header, labeled=labeled)
    reader = _Rows(table, roles, numbers=task == "regress", needed=bool(labeled))
    examples, lines, disputed = [], [], 0
    for row in range(roles.first, len(table.rows)):
        if reader.is_disputed(row):
            disputed += 1
            continue
        examples.append(reader.example(row))
        lines.append(table.lines[row])
    dropped = {"gold_label is -: the annotators did not agree": disputed} if disputed else {}
    return ExampleSet(example_list(examples, table.name), table.name, roles.description, dropped, lines, table.unit)


class _Rows:
    """Converts rows to examples."""

    def __init__(self, table: Table, roles: Roles, *, numbers: bool, needed: bool) -> None:
        self.table, self.roles, self.numbers, self.needed = table, roles, numbers, needed
        self.last = max(*roles.texts, *roles.labels, 0)
        self.width = len(roles.header) if roles.header is not None else len(table.rows[0])
        # Tab-separated files without a header may have rows of different widths, as in STS-B.
        self.exact = table.delimiter is not None and (table.delimiter != "\t" or roles.header is not None)
        self.gold = next((index for index in roles.labels if fold(self._name(index)) == "gold_label"), None)

    def is_disputed(self, row: int) -> bool:
        cells = self.table.rows[row]
        return self.gold is not None and self.gold < len(cells) and cells[self.gold] == _NO_AGREEMENT

    def example(self, row: int) -> TextExample:
        self._check_width(row)
        texts = [self._text(row, index) for index in self.roles.texts]
        return TextExample(texts[0], texts[1] if len(texts) > 1 else None, self._label(row))

    def _check_width(self, row: int) -> None:
        cells, where = self.table.rows[row], self.table.location(row)
        if len(cells) <= self.last:
            raise InputError(
                f"{where}: expected column {self.last}, but this row has {len(cells)} of {self.width} columns "
                f"({self.roles.description}); fix the row or choose other --columns"
            )
        if self.exact and any(cell for cell in cells[self.width :]):
            quotes = "" if self.table.delimiter == "\t" else ", or quote the field that contains the delimiter"
            raise InputError(
                f"{where}: expected {self.width} columns, but this row has {len(cells)}; fix the row{quotes}"
            )

    def _text(self, row: int, index: int) -> str:
        cell, where = self.table.rows[row][index], self.table.location(row)
        key = self._name(index)
        if not isinstance(cell, str):
            actual = "nothing" if cell is None else kind_of(cell)
            raise InputError(
                f"{where}: {key} should be a text, got {actual}; {numbered(self.table, self.roles.header, row)}"
            )
        refuse_halves(cell, key, where)
        return cell

    def _label(self, row: int) -> str | tuple[str, ...] | float | None:
        labels, cells = self.roles.labels, self.table.rows[row]
        if not labels:
            return None
        if len(labels) > 1:
            return tuple(self._name(index) for index in labels if self._flag(row, index))
        cell = cells[labels[0]]
        if cell is None and not self.needed:
            return None
        if isinstance(cell, list) and not self.numbers:
            return tuple(str(item) for item in cell)
        text = "" if cell is None else str(cell).strip()
        if not text or isinstance(cell, list | dict):
            actual = kind_of(cell) if isinstance(cell, list | dict) else "nothing"
            where, name = self.table.location(row), self._name(labels[0])
            raise InputError(f"{where}: {name} should be a label, got {actual}; give every row a label")
        return self._number(row, text) if self.numbers else text

    def _number(self, row: int, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            where, name = self.table.location(row), self._name(self.roles.labels[0])
            raise InputError(f"{where}: {name} should be a number, got {text!r}; fix the row or choose other --columns")
        return number

    def _flag(self, row: int, index: int) -> bool:
        cell = self.table.rows[row][index]
        text = str(cell).strip()
        if text not in _FLAGS:
            where = self.table.location(row)
            raise InputError(f"{where}: {self._name(index)} should be 0 or 1, got {text!r}; fix the row or --columns")
        return _FLAGS[text]

    def _name(self, index: int) -> str:
        header = self.roles.header
        return header[index] if header is not None and index < len(header) else f"column {index}"
