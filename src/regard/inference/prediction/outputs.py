"""Writes predictions to a CSV, JSON lines or Parquet file, in constant memory; the file appears once it is complete.

All formats have the same columns. Lists and entities are lists in JSON lines and Parquet, and JSON in CSV. A missing
value is null, in CSV an empty cell.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.inference.bulk.parts import expect_rows, import_pyarrow
from regard.inference.bulk.shards import Reader, unpack_json
from regard.tasks.task import ColumnKind

# What a kept column holds: the same kind in every row, or else anything, which Parquet stores as JSON.
CellKind = ColumnKind | Literal["boolean", "json"]
Columns = Mapping[str, CellKind]


SUFFIXES = (".csv", ".jsonl", ".parquet")


def kind_of_cells(kind: CellKind | None, value: object) -> CellKind | None:
    """The kind of a column with one more value; None if it has had missing values only."""
    if value is None:
        return kind
    found: CellKind = "json"
    if isinstance(value, bool):
        found = "boolean"
    elif isinstance(value, int):
        found = "integer" if -(2**63) <= value < 2**63 else "json"
    elif isinstance(value, float):
        found = "number"
    elif isinstance(value, str):
        found = "string"
    if kind is None or kind == found:
        return found
    return "number" if {kind, found} == {"integer", "number"} else "json"


def _tables(blocks: Reader, count: int) -> Iterator[list[list[Any]]]:
    """The rows of each block."""
    done = 0
    for block in blocks("rows"):
        rows: list[list[Any]] = unpack_json(block["rows"])
        done += len(rows)
        yield rows
    expect_rows(count, done)


def _csv(path: Path, blocks: Reader, columns: Columns, count: int) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for rows in _tables(blocks, count):
            writer.writerows([_json(cell) if isinstance(cell, list | dict) else cell for cell in row] for row in rows)


def _jsonl(path: Path, blocks: Reader, columns: Columns, count: int) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for rows in _tables(blocks, count):
            file.writelines(_json(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


@dataclass(frozen=True)
class WritePredictions:
    """Writes the predictions for all rows, or those of one shard, to a file."""

    columns: Columns

    def __call__(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None = None, /) -> None:
        if path.suffix == ".parquet":
            _parquet(path, blocks, self.columns, rows, metadata)
        else:
            {".csv": _csv, ".jsonl": _jsonl}[path.suffix](path, blocks, self.columns, rows)


def _parquet(path: Path, blocks: Reader, columns: Columns, count: int, metadata: Mapping[bytes, bytes] | None) -> None:
    """A row group a block."""
    pa, parquet = import_pyarrow()
    entity = pa.struct(
        [
            ("text", pa.string()),
            ("label", pa.string()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("score", pa.float64()),
        ]
    )
    types: dict[CellKind, Any] = {
        "string": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "strings": pa.list_(pa.string()),
        "numbers": pa.list_(pa.float64()),
        "entities": pa.list_(entity),
        "json": pa.string(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()], metadata)
    with parquet.ParquetWriter(path, schema, write_page_checksum=metadata is not None) as file:
        for rows in _tables(blocks, count):
            arrays = []
            for index, kind in enumerate(columns.values()):
                cells = [row[index] for row in rows]
                if kind == "json":
                    cells = [cell if cell is None or isinstance(cell, str) else _json(cell) for cell in cells]
                arrays.append(pa.array(cells, types[kind]))
            file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
