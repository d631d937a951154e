"""Reads texts and text pairs with labels or scores from TSV, CSV, JSON lines, Parquet or plain lines."""

from __future__ import annotations

import math
from collections import Counter

from regard.data.examples import TextExample
from regard.data.labels import is_missing, is_missing_label
from regard.data.readers.records import ExampleSet, Path, kind_of
from regard.data.readers.roles import Roles, RowWidths, TextTask, decide, text_cell
from regard.data.readers.tables import INFERRED, Table, TableOptions, fold, open_table
from regard.errors import InputError, check_choice
from regard.wording import count_of

BLANK = "is blank"
DISPUTED = "gold_label is -: the annotators did not agree"
SKIP_HINT = "fix it, or leave out such rows with --missing skip"
_NO_AGREEMENT = "-"  # MNLI's and SNLI's gold_label where the annotators did not agree
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}


def read_text_examples(
    path: Path, options: TableOptions = INFERRED, *, task: TextTask, labeled: bool | None = None
) -> ExampleSet[TextExample]:
    """Read the examples of a file; the columns are names or numbers from 0: text, second text for a pair, label.

    `labeled`: True raises an error if there are no labels, False ignores labels, None reads them if there are any.
    Labels are strings, numbers for regress, and tuples if a JSON line has a list or the options name several columns of
    0 and 1.

    A row without a text, or without a label where labels are required, is an error by default; the option `missing`
    "skip" leaves such rows out and counts them. Blank lines at the end of the file are no rows.
    """
    missing = options.missing
    check_choice("task", task, ("classify", "pair", "regress", "sequence"))
    check_choice("way with missing texts and labels", missing or "error", ("error", "skip", "keep"))
    table = open_table(path, options)
    roles = decide(table, task=task, columns=options.columns, header=options.header, labeled=labeled)
    reader = _Rows(table, roles, numbers=task == "regress", needed=bool(labeled))
    examples, lines = [], []
    dropped: Counter[str] = Counter({BLANK: len(table.blank)} if table.blank else {})
    if table.blank and missing != "skip":
        raise InputError(f"{table.name} {table.unit} {table.blank[0]} {BLANK}; {SKIP_HINT}")
    for row in range(roles.first, len(table.rows)):
        if reader.is_disputed(row):
            dropped[DISPUTED] += 1
        elif (reason := reader.missing(row)) is None:
            examples.append(reader.example(row))
            lines.append(table.lines[row])
        elif missing == "skip":
            dropped[reason] += 1
        else:
            raise InputError(f"{table.location(row)} {reason}; {SKIP_HINT}")
    if not examples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise InputError(f"{table.name} has no examples: {reasons}; expected at least one row with a text and a label")
    text_columns = roles.text_names if roles.header else ("text", "second")[: len(roles.texts)]
    return ExampleSet(
        examples, table.name, roles.description, dict(dropped), lines, table.unit, text_columns, reader.notes()
    )


class _Rows:
    """Converts rows to examples."""

    def __init__(self, table: Table, roles: Roles, *, numbers: bool, needed: bool) -> None:
        self.table, self.roles, self.numbers, self.needed = table, roles, numbers, needed
        self.widths = RowWidths.of(table, roles)
        self.padded: Counter[str] = Counter()  # labels with spaces around them
        self.gold = next((index for index in roles.labels if fold(self._name(index)) == "gold_label"), None)

    def notes(self) -> tuple[str, ...]:
        if not self.padded:
            return ()
        label = next(iter(self.padded))
        return (f"{count_of(self.padded.total(), 'label')} without the spaces around them, such as {label!r}",)

    def missing(self, row: int) -> str | None:
        """Return what a row lacks, if anything: a text, or a label if one is needed."""
        cells = self.table.rows[row]
        self.widths.check(cells, self.table.location(row))
        for index in self.roles.texts:
            if is_missing(cells[index]):
                return f"has no text ({self._name(index)})"
        if self.needed and len(self.roles.labels) == 1 and is_missing_label(cells[self.roles.labels[0]]):
            return f"has no label ({self._name(self.roles.labels[0])})"
        return None

    def is_disputed(self, row: int) -> bool:
        cells = self.table.rows[row]
        return self.gold is not None and self.gold < len(cells) and cells[self.gold] == _NO_AGREEMENT

    def example(self, row: int) -> TextExample:
        cells, where = self.table.rows[row], self.table.location(row)
        texts = [text_cell(self.roles, cells, index, where) for index in self.roles.texts]
        return TextExample(texts[0], texts[1] if len(texts) > 1 else None, self._label(row))

    def _label(self, row: int) -> str | tuple[str, ...] | float | None:
        labels, cells = self.roles.labels, self.table.rows[row]
        if not labels:
            return None
        if len(labels) > 1:
            return tuple(self._name(index) for index in labels if self._flag(row, index))
        cell = cells[labels[0]]
        if isinstance(cell, list) and not self.numbers:
            return tuple(str(item) for item in cell)
        if is_missing_label(cell):
            return None
        text = str(cell).strip()
        if text != str(cell) and not self.numbers:
            self.padded[str(cell)] += 1
        if isinstance(cell, list | dict):
            where, name = self.table.location(row), self._name(labels[0])
            raise InputError(f"{where}: {name} should be a label, got {kind_of(cell)}; give every row a label")
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
        return self.roles.name(index)
