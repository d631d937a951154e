"""Bulk prediction: every row of an input to a row of a table, as a job of `regard.inference.bulk`.

Every block has `lines` (n: the numbers of its rows), `rows` (the rows of the table as bytes of JSON), and the totals
`blank` (1) and `truncated` (1).

All formats of the output have the same columns. Lists and entities are lists in JSON lines and Parquet, and JSON in
CSV. A missing value is null, in CSV an empty cell.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import group_by_size
from regard.data.examples import ImageExample, example_values
from regard.engine.precision import InferencePrecision
from regard.errors import InputError
from regard.events import Event, Note, drain, map_events
from regard.inference.bulk.job import SHARD_SIZE, InputRows, Job, scan_rows, spool_folder
from regard.inference.bulk.parts import check_output, expect_rows, import_pyarrow
from regard.inference.bulk.ray_engine import RayCluster
from regard.inference.bulk.shards import Block, Reader, pack_json, unpack_json
from regard.inference.bulk.workers import Compute, ModelFiles
from regard.tasks.fine_tuned_model import FineTunedModel, fine_tuned_of
from regard.tasks.prediction.inputs import InputRow, PredictionInput
from regard.tasks.prediction.predict import predict_rows, reading_note, row_size
from regard.tasks.prediction.result import PAGE_EXAMPLES, PredictionTable, PredictResult
from regard.tasks.task import ColumnKind, Task

# What a kept column holds: the same kind in every row, or else anything, which Parquet stores as JSON.
CellKind = ColumnKind | Literal["boolean", "json"]
Columns = Mapping[str, CellKind]


SUFFIXES = (".csv", ".jsonl", ".parquet")


def predict_file(
    loaded: LoadedModel,
    model: FineTunedModel,
    inputs: PredictionInput,
    output: Path,
    *,
    settings: dict[str, object],
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
    force: bool = False,
    page: bool = False,
    devices: Sequence[str] | None = None,
    cluster: RayCluster | None = None,
) -> Generator[Event, None, PredictResult]:
    """Write the predictions for all rows to a .csv, .jsonl or .parquet file.

    An output without a suffix, or on an object store, is a folder of Parquet files, one for each shard. `settings` are
    the options that predictions depend on beside the model and the rows. With `page` the result has the examples that
    its page shows. `Job` explains the other options.
    """
    check_output(output, SUFFIXES, force=force)
    table = PredictionTable(model.task, inputs.kept, lines=inputs.has_lines)
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=spool_folder(output)) as spool:
        kinds: dict[str, CellKind | None] = dict.fromkeys(inputs.kept)
        rows = _scan(model, inputs, kinds, spool)
        yield Note(message=reading_note(inputs, rows.count))
        columns: dict[str, CellKind] = {
            **dict.fromkeys(table.position_names, "integer"),
            **{name: kind or "string" for name, kind in kinds.items()},
            **table.predicted,
        }
        job = Job(
            inputs=rows,
            model=loaded,
            settings={**settings, "columns": list(columns), "format": output.suffix},
            compute=lambda shard: _blocks(model, table, shard),
            load=partial(_load, table, model.task, model.inference_precision),
            write=WritePredictions(columns),
            stage="predicting",
            unit="rows",
            totals=("blank", "truncated"),
            shard_size=shard_size,
            devices=devices,
            cluster=cluster,
        )
        outcome = yield from job.run(output, restart=restart, force=force)
        skipped, note = inputs.skipped
        result = PredictResult(
            model=loaded.name,
            task=model.task.name,
            rows=rows.count,
            **outcome.totals,
            skipped=skipped,
            output=outcome.output,
            resumed=outcome.resumed,
            seconds=outcome.seconds,
            predictions=[],
        )
        result._already_done, result._fine_tuned, result._table = outcome.already_done, model, table
        result._skipped_note = note
        if page:
            examples = list(islice((row for row in rows.read() if row.example is not None), PAGE_EXAMPLES))
            predictions, _ = drain(predict_rows(model, examples))
            result._first = [
                (row.example, one) for row, one in zip(examples, predictions, strict=True) if row.example and one
            ]
    return result


def _load(
    table: PredictionTable,
    task: Task[Any],
    precision: InferencePrecision | None,
    files: ModelFiles,
    device: torch.device,
) -> Compute:
    """What predicts shards in another process, with the task and the precision of the model in this one."""
    model = replace(fine_tuned_of(files.load(device)), task=task, inference_precision=precision)
    return lambda rows: _blocks(model, table, rows)


def _scan(
    model: FineTunedModel, inputs: PredictionInput, kinds: dict[str, CellKind | None], spool: Any
) -> InputRows[InputRow]:
    """Read all rows once, and find out what the kept columns hold."""

    def observed() -> Iterator[InputRow]:
        for row in inputs.rows:
            for name, value in row.kept.items():
                kinds[name] = kind_of_cells(kinds[name], _cell(value))
            yield row

    def decode(saved: list[Any]) -> InputRow:
        number, line, texts, kept = saved
        example = None if texts is None else model.task.example(*texts)
        return InputRow(number, line, example, kept)

    rows = scan_rows(
        observed(),
        name=inputs.name,
        again=inputs.reopen,
        rereadable=inputs.rereadable,
        spool=spool,
        encode=_encode,
        decode=decode,
    )
    if not rows.count:
        raise InputError(f"{inputs.name} is empty; expected at least one row")
    return rows


def _encode(row: InputRow) -> list[Any]:
    """A row as JSON: its texts, of an image its pixels in short."""
    texts: Any = None
    if isinstance(row.example, ImageExample):
        texts = [row.example.name, hashlib.sha256(row.example.pixels.tobytes()).hexdigest()]
    elif row.example is not None:
        texts = [value for name, value in example_values(row.example).items() if name != "id"]
    return [row.number, row.line, texts, dict(row.kept)]


def _blocks(model: FineTunedModel, table: PredictionTable, rows: Iterator[InputRow]) -> Iterator[Block | int]:
    """Predict rows: yields the number of finished rows so far, and blocks as they are complete."""
    done = 0
    for group in group_by_size(rows, row_size):
        predictions, truncated = yield from map_events(predict_rows(model, group), partial(add, done))
        cells = [
            [_cell(cell) for cell in table.cells(row, prediction)]
            for row, prediction in zip(group, predictions, strict=True)
        ]
        yield {
            "lines": np.array([row.number for row in group]),
            "rows": pack_json(cells),
            "blank": np.array([predictions.count(None)]),
            "truncated": np.array([truncated]),
        }
        done += len(group)
        yield done


def _cell(value: Any) -> Any:
    """A value that JSON can hold: what a DataFrame or Parquet has for "missing" is None, dates are text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, list | tuple):
        return [_cell(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _cell(item) for name, item in value.items()}
    if hasattr(value, "item"):  # a number of numpy
        return _cell(value.item())
    return None if value != value else str(value)  # NaT is not equal to itself


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
