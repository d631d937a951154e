"""`regard evaluate`: the metrics of a fine-tuned model on labeled examples, and its errors."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationInfo, field_validator
from pydantic.json_schema import SkipJsonSchema

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import (
    ModelName,
    Models,
    Precision,
    TextsMarker,
    argument,
    force_option,
    option,
    precision_option,
    reads_files,
    seed_option,
    verb,
)
from regard.verbs.tables import TableRequest, table_options
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.data.readers import ExampleSet
    from regard.tasks.evaluation.result import EvaluationResult
    from regard.tasks.fine_tuned_model import FineTunedModel


LINES = "the given lines"  # the name of data that is not in a file


def _read_data(value: object, info: ValidationInfo) -> object:
    from regard.data.readers import RecordList

    if isinstance(value, RecordList):
        return value
    if isinstance(value, str | os.PathLike):
        return Path(value) if reads_files(info) else os.fspath(value).splitlines()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return RecordList.from_source(value)


# A file of labeled examples ("-" is standard input), or its lines; in Python also a DataFrame, or a list of dicts
# or tuples. Over HTTP a string holds the lines themselves: a client cannot make the server read a file.
LabeledData: TypeAlias = Annotated[list[str] | Path | SkipJsonSchema[Any], BeforeValidator(_read_data), TextsMarker()]


class EvaluateRequest(TableRequest):
    model: ModelName = argument(
        help="A folder that `regard train` wrote, or a published model with a task head.", metavar="DIR"
    )
    data: LabeledData = option(
        help="Labeled examples, as `regard train` reads them. In Python also a DataFrame, dictionaries or tuples.",
        metavar="FILE",
    )
    report: Path | None = option(
        None, help="Also write a page with the scores, the curves and the errors.", metavar="FILE.html", writes=True
    )
    errors: Path | None = option(
        None, help="Also write all errors, the worst first, as CSV or JSON lines.", metavar="FILE.csv", writes=True
    )
    top: int = option(10, "-k", help="Number of the worst errors to show.", metavar="N", ge=0)
    threshold: float | None = option(
        None, help="answer: the margin by which an answer must exceed no answer; the trained one by default."
    )
    precision: Precision | None = precision_option()
    seed: int = seed_option()
    force: bool = force_option()

    @field_validator("report")
    @classmethod
    def _check_report(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in (".html", ".htm"):
            raise ValueError("expected a name that ends in .html")
        return value

    @field_validator("errors")
    @classmethod
    def _check_errors(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in (".csv", ".jsonl"):
            raise ValueError("expected a name that ends in .csv or .jsonl")
        return value


@verb(
    EvaluateRequest,
    result="regard.tasks.evaluation.result:EvaluationResult",
    formats=(".html", ".csv", ".json"),
    max_characters=300_000,
)
def evaluate(request: EvaluateRequest, models: Models) -> Generator[Event, None, EvaluationResult]:
    """Evaluate a fine-tuned model on labeled examples: metrics with 95% intervals, and the worst errors.

    Classes: confusion matrix, precision, recall and F1 of each class, calibration, and for two classes scores at every
    threshold. Entities: scores of each type. Answers: scores of each kind of question. Numbers: correlations and
    residuals. The scores equal those of scikit-learn, nervaluate and SQuAD's script.
    """
    from regard.files.output_file import replace_output
    from regard.render.bundle import check_built
    from regard.tasks.evaluation.evaluate import evaluate_model
    from regard.tasks.fine_tuned_model import fine_tuned_of, require_fine_tuned

    with ExitStack() as stack:
        # What cannot be written is an error before the work.
        if request.report is not None:
            check_built()
        page, errors = (
            None if path is None else stack.enter_context(replace_output(path, force=request.force))
            for path in (request.report, request.errors)
        )
        loaded = stack.enter_context(models.use(request.model, require_fine_tuned))
        model = fine_tuned_of(loaded).with_threshold(request.threshold).with_precision(request.precision)
        result = yield from evaluate_model(
            model,
            _examples(request, model),
            name=request.model,
            top=request.top,
            seed=request.seed,
        )
        if page is not None:
            result.with_reproduction(evaluate.command_line(request), evaluate.python_code(request))
            page.write_text(result.to_html(), encoding="utf-8")
        if errors is not None and request.errors is not None:
            errors.write_bytes(result.errors_file(request.errors.suffix.lower()))
    for note in model.precision_notes():
        yield Note(message=note)
    if request.report is not None:
        yield Note(message=f"{request.report}: the report")
    if request.errors is not None:
        yield Note(message=f"{request.errors}: {count_of(result.num_errors, 'error')}")
    return result


def _examples(request: EvaluateRequest, model: FineTunedModel) -> ExampleSet[Any]:
    """The examples of a file or of rows in memory, or of lines, which are read as their file would be."""
    from regard.tasks.registry import read_examples

    table = table_options(request)
    if not isinstance(request.data, list):
        return read_examples(model.task, request.data, table=table, labeled=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines.txt"  # the extension tells nothing: the reader looks at the content
        path.write_bytes("\n".join(request.data).encode("utf-8", "replace"))
        try:
            read = read_examples(model.task, path, table=table, labeled=True)
        except InputError as error:
            raise InputError(str(error).replace(str(path), LINES)) from None
    return replace(read, path=LINES)
