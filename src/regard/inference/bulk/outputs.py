"""What every output file of a bulk job needs: checks before the work, and pyarrow for Parquet."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError, suggest
from regard.files.output_file import check_output_file


def check_output(path: Path, suffixes: Collection[str], *, force: bool = False) -> None:
    """Refuse an output that could not be written, before anything else is done."""
    if path.suffix not in suffixes:
        hint = suggest(path.suffix, suffixes)
        raise InputError(
            f"{path}: the name of the output says its format, and {path.suffix or 'no suffix'!r} is none; {hint}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}; create it first")
    check_output_file(path, force=force)
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written: you may not write in {path.parent}; choose another folder")
    if path.suffix == ".parquet":
        import_pyarrow()


def expect_rows(expected: int, count: int, *, unit: str = "rows") -> None:
    """Raise RegardError if the shards do not hold all rows."""
    if count != expected:
        raise RegardError(
            f"the finished shards hold {count} {unit} where {expected} were expected; start anew with --restart"
        )


def import_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its module for Parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet needs pyarrow, which is not installed: pip install 'regard[data]', or choose another format"
        ) from error
    return pyarrow, pyarrow.parquet
