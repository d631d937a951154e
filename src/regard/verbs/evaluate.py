"""`regard evaluate`: the metrics of a fine-tuned model on labeled examples."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.events import Event
from regard.verbs.base import ModelName, Models, argument, option, verb
from regard.verbs.tables import TableRequest, table_options

if TYPE_CHECKING:
    from regard.tasks.evaluation.evaluate import EvaluationResult


class EvaluateRequest(TableRequest):
    model: ModelName = argument(help="A folder that `regard train` wrote.", metavar="DIR")
    data: Path = option(help="Labeled examples.", metavar="FILE")
    threshold: float | None = option(
        None, help="answer: the margin by which an answer must exceed no answer; the trained one by default."
    )


@verb(
    EvaluateRequest,
    result="regard.tasks.evaluation.evaluate:EvaluationResult",
    formats=(".csv", ".json"),
    http=False,
)
def evaluate(request: EvaluateRequest, models: Models) -> Generator[Event, None, EvaluationResult]:
    """Compute the metrics of a fine-tuned model on labeled examples, in percent."""
    from regard.tasks.evaluation.evaluate import evaluate_model
    from regard.tasks.fine_tuned_model import fine_tuned_of, require_fine_tuned

    with models.use(request.model, require_fine_tuned) as loaded:
        model = fine_tuned_of(loaded).with_threshold(request.threshold)
        return (yield from evaluate_model(model, request.data, table=table_options(request)))
