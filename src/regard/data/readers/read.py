"""What a reader gives back, and the lines of a file that is held whole.

Reads all of a file at once, because what it holds is decided before the first example is made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regard.data.files import display_name, read_all_lines
from regard.errors import InputError

__all__ = ["ExampleSet", "Path", "example_list", "kind_of", "read_lines"]

E = TypeVar("E")
Path = str | os.PathLike[str]


@dataclass(frozen=True)
class ExampleSet(Generic[E]):
    """Examples with where they came from. `how` is a line for people: what was decided about the file."""

    examples: list[E]
    path: str
    description: str
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> how many
    lines: list[int] = field(default_factory=list)  # where each example began, counted from 1
    unit: str = "line"  # or what else is counted

    def location(self, example: int) -> str:
        """Where an example began, for an error: line 12."""
        return f"{self.unit} {self.lines[example]:,}" if self.lines else f"example {example + 1:,}"


def read_lines(path: Path, *, max_line: int | None = None) -> list[str]:
    """Every line of a text file; InputError for one that holds no text."""
    name = display_name(path)
    lines = read_all_lines(path, max_line=max_line)
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise InputError(
                f"{name} line {number}: a zero byte, which no text holds; expected a text file, not a binary"
            )
    if not any(line.strip() for line in lines):
        raise InputError(f"{name} is empty: expected at least one example")
    return lines


def example_list(examples: Sequence[E], name: str) -> list[E]:
    """The examples, of which there must be one."""
    if not examples:
        raise InputError(f"{name} holds no example: expected at least one")
    return list(examples)


def kind_of(value: object) -> str:
    """What JSON calls a value, for an error."""
    names: dict[type, str] = {
        list: "a list",
        dict: "an object",
        bool: "true or false",
        type(None): "null",
        str: "a string",
    }
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
