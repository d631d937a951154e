"""The result of a reader, and functions that readers share.

Readers load a file completely, because its format is inferred before the first example is created.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regard.data.files import display_name, read_all_lines
from regard.errors import InputError

E = TypeVar("E")
Path = str | os.PathLike[str]


@dataclass(frozen=True)
class ExampleSet(Generic[E]):
    """Examples and where they come from. `description` says in one line how the file was read."""

    examples: list[E]
    path: str
    description: str
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> count
    lines: list[int] = field(default_factory=list)  # first line of each example, from 1
    unit: str = "line"  # what `lines` counts

    def location(self, example: int) -> str:
        """Return where an example starts, for errors: "line 12"."""
        return f"{self.unit} {self.lines[example]:,}" if self.lines else f"example {example + 1:,}"


def read_lines(path: Path, *, max_line: int | None = None) -> list[str]:
    """Return all lines of a text file. Raises InputError if it is empty or binary."""
    name = display_name(path)
    lines = read_all_lines(path, max_line=max_line)
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise InputError(f"{name} line {number}: contains a zero byte; expected a text file, not a binary file")
    if not any(line.strip() for line in lines):
        raise InputError(f"{name} is empty: expected at least one example")
    return lines


def example_list(examples: Sequence[E], name: str) -> list[E]:
    """Return the examples as a list. Raises InputError if there are none."""
    if not examples:
        raise InputError(f"{name} has no examples: expected at least one")
    return list(examples)


def kind_of(value: object) -> str:
    """Return the JSON type of a value, for errors."""
    names: dict[type, str] = {
        list: "a list",
        dict: "an object",
        bool: "true or false",
        type(None): "null",
        str: "a string",
    }
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
