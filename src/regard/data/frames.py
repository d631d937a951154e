"""A DataFrame as an argument. Imports nothing, so that the command line starts quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class DataFrameSource:
    """A DataFrame of pandas or polars; in lines that reproduce a result, a file or a variable stands for it."""

    frame: Any

    def __str__(self) -> str:
        return "FILE"

    def __repr__(self) -> str:
        return "frame"
