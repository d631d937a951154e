"""Bulk prediction: every row of an input to a row of a table, as a job of `regard.inference.bulk`.

Every block has `lines` (n: the numbers of its rows), `rows` (the rows of the table as bytes of JSON), and the totals
`blank` (1) and `truncated` (1).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import group_by_size
from regard.data.examples import ImageExample, example_values
from regard.engine.precision import InferencePrecision
from regard.errors import InputError
from regard.events import Event, Note, drain
from regard.files import storage
from regard.inference.bulk.job import SHARD_SIZE, InputRows, run_job, run_job_in_parts, scan_rows, spool_folder
from regard.inference.bulk.outputs import check_output
from regard.inference.bulk.parts import check_folder, is_part_folder
from regard.inference.bulk.ray_engine import RayCluster
from regard.inference.bulk.shards import Block, manifest, pack_json
from regard.inference.bulk.workers import Compute, ModelFiles
from regard.inference.prediction import outputs
from regard.inference.prediction.outputs import CellKind, kind_of_cells
from regard.tasks.fine_tuned_model import FineTunedModel, fine_tuned_of
from regard.tasks.prediction.inputs import InputRow, PredictionInput
from regard.tasks.prediction.predict import predict_rows, reading_note, row_size
from regard.tasks.prediction.result import PAGE_EXAMPLES, PredictionTable, PredictResult
from regard.tasks.task import Task


def check(output: Path, *, force: bool = False) -> None:
    """Refuse an output that could not be written, before anything else is done."""
    if is_part_folder(output):
        return check_folder(output)
    check_output(output, outputs.WRITERS, force=force)


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

    An output without a suffix, or on an object store, is a folder of Parquet files, one for each shard.

    Finished shards of `shard_size` rows are kept in `output` + ".partial" until the end, as `run_job` explains.
    `settings` are the options that predictions depend on beside the model and the rows. With `page` the result has the
    examples that its page shows.

    With several `devices`, by default those of the loaded model, shards are computed in one process per device, if the
    model is read from a folder. With a `cluster` Ray's workers compute them.
    """
    check(output, force=force)
    folder = storage.normalize(output) if is_part_folder(output) else None
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
        record = manifest(
            digest=rows.digest,
            model=loaded,
            continuable=rows.rereadable,
            settings={**settings, "columns": list(columns), "format": output.suffix, "shard_size": shard_size},
        )
        files = ModelFiles.of(loaded, record)
        running: dict[str, Any] = {
            "stage": "predicting",
            "unit": "rows",
            "totals": ("blank", "truncated"),
            "shard_size": shard_size,
            "restart": restart,
            "task": PredictTask(files, table, model.task, model.inference_precision) if files else None,
            "devices": loaded.devices if devices is None else [torch.device(name) for name in devices],
            "cluster": cluster,
        }

        def compute(shard: Iterator[InputRow]) -> Iterator[Block | int]:
            return _blocks(model, table, shard)

        if folder is not None:
            writer = outputs.WritePredictions(columns)
            outcome = yield from run_job_in_parts(rows, folder, record, compute, writer, **running)
        else:
            outcome = yield from run_job(
                rows,
                output,
                record,
                compute,
                lambda path, blocks: outputs.write(path, blocks, columns, count=rows.count),
                force=force,
                **running,
            )
        skipped, note = inputs.skipped
        result = PredictResult(
            model=loaded.name,
            task=model.task.name,
            rows=rows.count,
            **outcome.totals,
            skipped=skipped,
            output=output if folder is None else folder,
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


@dataclass(frozen=True)
class PredictTask:
    """Predicts shards in another process, with the task and the precision of the model in this one."""

    files: ModelFiles
    table: PredictionTable
    task: Task[Any]
    precision: InferencePrecision | None

    def load(self, device: torch.device) -> Compute:
        loaded = fine_tuned_of(self.files.load(device))
        model = replace(loaded, task=self.task, inference_precision=self.precision)
        return lambda rows: _blocks(model, self.table, rows)


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
        steps = predict_rows(model, group)
        while True:
            try:
                yield done + next(steps)
            except StopIteration as end:
                predictions, truncated = end.value
                break
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
