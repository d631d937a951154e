"""`regard predict`: the predictions of a fine-tuned model for new input."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationInfo, field_validator
from pydantic.json_schema import SkipJsonSchema

from regard.data.files import STANDARD_INPUT, is_file_name, refuse_file_name
from regard.data.text_inputs import DataFrameSource, read_rows
from regard.events import Event, Note
from regard.verbs.base import (
    ModelName,
    Models,
    Precision,
    TextsMarker,
    argument,
    in_python,
    option,
    precision_option,
    read_collection,
    read_string,
    reads_files,
    verb,
)
from regard.verbs.bulk import BulkRequest, cluster_of
from regard.verbs.tables import table_options

if TYPE_CHECKING:
    from regard.tasks.fine_tuned_model import FineTunedModel
    from regard.tasks.prediction.inputs import PredictionInput
    from regard.tasks.prediction.result import PredictResult


def _read_source(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str | os.PathLike):
        return read_string(value, info)
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return [value]  # one pair
    return read_collection(value, read=read_rows)


def _read_second(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str) and in_python(info):
        refuse_file_name(value)
    return Path(value) if reads_files(info) and isinstance(value, str) and is_file_name(value) else value


# Texts, pairs or records, a file or a text, or a DataFrame.
Item = str | None | list[str | None] | tuple[str | None, ...] | dict[str, Any]
Source = Annotated[list[Item] | str | SkipJsonSchema[Any], BeforeValidator(_read_source), TextsMarker()]
Second = Annotated[str | Path | None, BeforeValidator(_read_second)]


class PredictRequest(BulkRequest):
    model: ModelName = argument(
        help="A folder that `regard train` wrote, or a published model with a task head.", metavar="DIR"
    )
    source: Source = argument(
        help="A file, - for standard input, or a text. In Python also texts, pairs, dicts or a DataFrame.",
        metavar="INPUT",
    )
    second: Second = argument(
        None, help="The second text of a pair; for a question the text, or a file, with the answer.", metavar="SECOND"
    )
    output: Path | None = option(
        None,
        "-o",
        help="File for the predictions: .csv, .jsonl or .parquet. Default: print them.",
        metavar="FILE",
        writes=True,
    )
    keep: list[str] = option([], help="Columns of the input to copy to the output, or all of them.", metavar="A,B|all")
    threshold: float | None = option(
        None, help="answer: minimum margin of the best answer over no answer.", metavar="X"
    )
    aggregation: Literal["none", "simple", "first", "average", "max"] | None = option(
        None, help="tag, with a model that Regard did not train: how tokens become entities, as in transformers."
    )
    page: Path | None = option(
        None, help="Also write a page with the first 50 examples.", metavar="FILE.html", writes=True
    )
    evidence: bool = option(
        False, help="Compute attention and attributions of the examples that the page shows; this takes long."
    )
    precision: Precision | None = precision_option()
    shard_size: int = option(4096, help="Rows per shard: what a crash loses at most.", metavar="N", ge=1)
    restart: bool = option(False, help="Predict all rows again, whatever an earlier run has finished.")

    @field_validator("page")
    @classmethod
    def _check_page(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in (".html", ".htm"):
            raise ValueError("expected a name that ends in .html")
        return value

    def table_flags(self) -> list[str]:
        pairs = isinstance(self.source, list) and any(isinstance(item, list | tuple) for item in self.source)
        return ["--columns", "0,1"] if pairs and self.columns is None else []


@verb(PredictRequest, result="regard.tasks.prediction.result:PredictResult", items="predictions")
def predict(request: PredictRequest, models: Models) -> Generator[Event, None, PredictResult]:
    """Predict labels, numbers, entities or answers with a fine-tuned model: one row of output for each row of input.

    INPUT is a file (one text per line, CSV, TSV, JSONL or Parquet; for answer also SQuAD's JSON, for tag CoNLL's
    columns, for choose what `regard train choose` reads, for images a file or a folder), - for standard input, or a
    text. A pair is two texts, and a question a text and the text or file that holds the answer:

    regard predict DIR "Who wrote it?" letter.txt

    Without --output, prints one JSON object per row. --output writes a table with the columns row (from 0), line,
    those that --keep copies, and the predictions: label, probability and p_LABEL for every class; value; entities
    with text, label, start, end and score; answer, start, end and score; choice, ending, probability. Published models
    with one output: score and logit. Rows without a text keep their place with empty cells.

    Finished shards are kept in FILE.partial until the end: after a crash or Ctrl-C the same command continues. A
    finished run leaves a record in FILE.regard.json: the same command again finds FILE intact and predicts nothing.
    """
    from regard.files.output_file import replace_output
    from regard.inference.bulk.job import how_to_continue
    from regard.inference.bulk.parts import check_output
    from regard.inference.prediction import SUFFIXES, predict_file
    from regard.interpret.attribution.predictions import evidence_events
    from regard.render.bundle import check_built
    from regard.tasks.fine_tuned_model import describe_compute, fine_tuned_of, require_fine_tuned
    from regard.tasks.prediction.predict import GROUP_SIZE, prediction_events

    cluster = cluster_of(request, output=request.output)
    with ExitStack() as stack:
        page = None
        if request.output is not None:  # what cannot be written is an error before the work
            check_output(request.output, SUFFIXES, force=request.force)
        if request.page is not None:
            check_built()
            page = stack.enter_context(replace_output(request.page, force=request.force))
        loaded = stack.enter_context(models.use(request.model, require_fine_tuned))
        fine_tuned = fine_tuned_of(loaded).with_threshold(request.threshold).with_precision(request.precision)
        fine_tuned = fine_tuned.with_aggregation(request.aggregation)
        yield Note(message=describe_compute(fine_tuned, fine_tuned.device))
        inputs = _open(request, fine_tuned)
        live = request.source == STANDARD_INPUT and request.output is None
        if request.output is None:
            group_size = 1 if live else GROUP_SIZE
            result = yield from prediction_events(fine_tuned, inputs, name=request.model, group_size=group_size)
        else:
            try:
                result = yield from predict_file(
                    loaded,
                    fine_tuned,
                    inputs,
                    request.output,
                    settings={
                        "threshold": request.threshold,
                        "precision": request.precision,
                        **({} if request.aggregation is None else {"aggregation": request.aggregation}),
                    },
                    shard_size=request.shard_size,
                    restart=request.restart,
                    force=request.force,
                    page=page is not None,
                    cluster=cluster,
                )
            except (Exception, GeneratorExit):
                raise
            except BaseException:  # Ctrl-C, or a signal that ends the process
                yield Note(message=how_to_continue(request.output, request.source))
                raise
        if isinstance(request.source, DataFrameSource) and request.output is None:
            result._frame = request.source.frame
        if request.evidence:
            yield from evidence_events(result, fine_tuned)
        if page is not None:
            result.with_reproduction(predict.command_line(request), predict.python_code(request))
            page.write_text(result.to_html(), encoding="utf-8")
            yield Note(message=f"{request.page}: {len(result.first):,} of {result.rows - result.blank:,} examples")
    for note in (*fine_tuned.precision_notes(), *result.notes()):
        yield Note(message=note)
    return result


def _open(request: PredictRequest, fine_tuned: FineTunedModel) -> PredictionInput:
    from regard.tasks.prediction.inputs import open_input

    source = request.source.frame if isinstance(request.source, DataFrameSource) else request.source
    live = request.source == STANDARD_INPUT and request.output is None
    return open_input(
        fine_tuned.task,
        source,
        request.second,
        table=table_options(request),
        keep=request.keep,
        names=fine_tuned.text_columns,
        live=live,
    )
