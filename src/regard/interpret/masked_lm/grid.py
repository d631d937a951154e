"""Many sentences of one template: the pairs among them, and the difference of the pairs' differences.

`In [1908|2018], [he|she] was employed as a _.` is a grid of rows (1908, 2018) and columns (he, she): a pair in every
row and in every column, and two squares that set pair against pair. Knows answers; knows no model and no pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from regard.interpret.masked_lm.pair import Chart, PairComparison, second_differences
from regard.interpret.masked_lm.predictions import MaskedPredictions

__all__ = ["ComparisonGrid", "SecondDifference"]


@dataclass(frozen=True)
class SecondDifference:
    """Two pairs of cells that differ in the same way: (1908 / he, 1908 / she) and (2018 / he, 2018 / she)."""

    first: tuple[int, int]
    second: tuple[int, int]


@dataclass(frozen=True, eq=False)
class ComparisonGrid:
    """Cells are numbered row by row, as the answers are. A template of one slot has a single row without a name."""

    text: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    predictions: MaskedPredictions

    def label(self, cell: int) -> str:
        row, column = divmod(cell, len(self.columns))
        return " / ".join(name for name in (self.rows[row], self.columns[column]) if name)

    def pair(self, a: int, b: int) -> PairComparison:
        told = self.predictions
        labels = self.label(a), self.label(b)
        return PairComparison(told.tokens, told.rows[a], told.rows[b], labels, told.model_name, kind="cells")

    def pairs(self) -> list[tuple[int, int]]:
        """Any two cells of a row, row by row; then any two of a column."""
        width, cells = len(self.columns), range(len(self.rows) * len(self.columns))
        across = [pair for row in range(len(self.rows)) for pair in combinations(cells[row * width :][:width], 2)]
        down = [pair for column in range(width) for pair in combinations(cells[column::width], 2)]
        return across + down

    def squares(self) -> list[SecondDifference]:
        """For any two rows and two columns: the rows' differences side by side, then the columns'."""
        width = len(self.columns)
        found = []
        for above, below in combinations(range(len(self.rows)), 2):
            for left, right in combinations(range(width), 2):
                a, b, c, d = (row * width + column for row in (above, below) for column in (left, right))
                found += [SecondDifference((a, b), (c, d)), SecondDifference((a, c), (b, d))]
        return found

    def document(self, number: int, chart: Chart) -> dict[str, object]:
        """What `regard compare --json` prints of a grid."""
        pairs = {cells: self.pair(*cells) for cells in self.pairs()}
        return {
            "template": self.text,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "pairs": [pair.document(number, chart) for pair in pairs.values()],
            "differences": [_square(pairs[one.first], pairs[one.second], number) for one in self.squares()],
        }


def _square(first: PairComparison, second: PairComparison, number: int) -> dict[str, object]:
    places, values = second_differences(first, second, number)
    tokens = [
        {"token": first.tokens[place], "difference_a": a, "difference_b": b, "difference": change}
        for place, (a, b, change) in zip(places.tolist(), values.tolist(), strict=True)
    ]
    return {"a": list(first.labels), "b": list(second.labels), "tokens": tokens}
