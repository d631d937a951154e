"""`regard evaluate`: the metrics of a fine-tuned model on labeled examples, and its errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from regard.events import Event, Note
from regard.verbs.base import ModelName, Models, argument, option, seed_option, verb
from regard.verbs.tables import TableRequest, table_options
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.tasks.evaluation.result import EvaluationResult


class EvaluateRequest(TableRequest):
    model: ModelName = argument(help="A folder that `regard train` wrote.", metavar="DIR")
    data: Path = option(help="Labeled examples.", metavar="FILE")
    report: Path | None = option(
        None, help="Also write a page with the scores, the curves and the errors.", metavar="FILE.html"
    )
    errors: Path | None = option(
        None, help="Also write all errors, the worst first, as CSV or JSON lines.", metavar="FILE.csv"
    )
    top: int = option(10, "-k", help="Number of the worst errors to show.", metavar="N", ge=0)
    threshold: float | None = option(
        None, help="answer: the margin by which an answer must exceed no answer; the trained one by default."
    )
    seed: int = seed_option()

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
    http=False,
)
def evaluate(request: EvaluateRequest, models: Models) -> Generator[Event, None, EvaluationResult]:
    """Evaluate a fine-tuned model on labeled examples: metrics with 95% intervals, and the worst errors.

    Classes: confusion matrix, precision, recall and F1 of each class, calibration, and for two classes scores at every
    threshold. Entities: scores of each type. Answers: scores of each kind of question. Numbers: correlations and
    residuals. The scores equal those of scikit-learn, nervaluate and SQuAD's script.
    """
    from regard.files.disk import replace_file
    from regard.render.bundle import check_built
    from regard.tasks.evaluation.evaluate import evaluate_model
    from regard.tasks.fine_tuned_model import fine_tuned_of, require_fine_tuned

    with ExitStack() as stack:
        # What cannot be written is an error before the work.
        if request.report is not None:
            check_built()
        page, errors = (
            None if path is None else stack.enter_context(replace_file(path))
            for path in (request.report, request.errors)
        )
        loaded = stack.enter_context(models.use(request.model, require_fine_tuned))
        model = fine_tuned_of(loaded).with_threshold(request.threshold)
        result = yield from evaluate_model(
            model,
            request.data,
            name=request.model,
            table=table_options(request),
            top=request.top,
            seed=request.seed,
        )
        if page is not None:
            result.with_reproduction(evaluate.command_line(request), evaluate.python_code(request))
            page.write_text(result.to_html(), encoding="utf-8")
        if errors is not None and request.errors is not None:
            errors.write_bytes(result.errors_file(request.errors.suffix.lower()))
    if request.report is not None:
        yield Note(message=f"{request.report}: the report")
    if request.errors is not None:
        yield Note(message=f"{request.errors}: {count_of(result.num_errors, 'error')}")
    return result
