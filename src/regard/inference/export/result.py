"""`ExportResult`: what `regard export` wrote."""

from __future__ import annotations

from regard.render.result import Result
from regard.wording import count_of


class ExportResult(Result):
    """An exported folder: its files and their size, the names of the model's inputs and outputs, and the largest
    absolute difference between its outputs and those of Regard for a few sample texts."""

    output: str
    format: str
    files: list[str]
    size_in_bytes: int
    inputs: list[str]
    outputs: list[str]
    largest_difference: float

    def to_text(self) -> str:
        size = f"{count_of(len(self.files), 'file')}, {self.size_in_bytes / 1e6:,.1f} MB"
        return (
            f"{self.output}: {size}, for {self.format}\n"
            f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}\n"
            f"largest difference from Regard: {self.largest_difference:.1e}"
        )
