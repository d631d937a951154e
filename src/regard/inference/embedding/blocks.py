"""Blocks: a few thousand rows as named arrays, and shards, which are files of blocks.

Knows the .npz format, member by member: a shard is written and read without ever being in memory as a whole.

Every block has `lines` (n) and `long` (1: how many texts did not fit), and either `vectors` (n, W), or for tokens
`lengths` (n), `vectors` (N, W), `offsets` (N, 2), `words` (N) and `tokens` (their strings as bytes of JSON).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

__all__ = ["Block", "Column", "check_blocks", "pack_tokens", "read_blocks", "unpack_tokens", "write_blocks"]

Column = NDArray[Any]
Block = dict[str, Column]


def write_blocks(path: Path, blocks: Iterable[Block]) -> None:
    """Write a shard, one block at a time."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, block in enumerate(blocks):
            for name, column in block.items():
                with archive.open(f"{number}.{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, column, allow_pickle=False)


def check_blocks(path: Path, rows: int) -> None:
    """RegardError where a shard is not whole: each array has a checksum of its own, and there must be `rows` rows."""
    again = "delete this file and run the same command again"
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise RegardError(f"{path} is damaged ({error}); {again}") from error
    if damaged is not None:
        raise RegardError(f"{path} is damaged (the checksum of {damaged} is another); {again}")
    found = sum(len(block["lines"]) for block in read_blocks(path, "lines"))
    if found != rows:
        raise RegardError(f"{path} is damaged: it holds {found:,} rows, expected {rows:,}; {again}")


def read_blocks(path: Path, *columns: str) -> Iterator[Block]:
    """The blocks of a shard, with the columns that are asked for and no more."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            number = 0
            while f"{number}.lines" in archive:
                yield {name: archive[f"{number}.{name}"] for name in columns}
                number += 1
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise RegardError(f"{path} is damaged ({error}); delete this file and run the same command again") from error


def pack_tokens(tokens: list[str]) -> Column:
    """Strings as an array; numpy's own arrays of strings take the room of the longest for each."""
    return np.frombuffer(json.dumps(tokens).encode("ascii"), dtype=np.uint8)


def unpack_tokens(column: Column) -> list[str]:
    found: list[str] = json.loads(column.tobytes())
    return found
