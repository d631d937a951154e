"""`regard doctor`: look for ten common mistakes with a model and its data."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.events import Event, Note
from regard.verbs.base import ModelName, Models, argument, option, verb
from regard.verbs.tables import TableRequest, table_options
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.training.doctor import DoctorResult


class DoctorRequest(TableRequest):
    model: ModelName = argument(help="A folder that `regard train` wrote, or a model to fine-tune.", metavar="MODEL")
    data: Path = option(help="Labeled examples to evaluate on.", metavar="FILE")
    train: Path | None = option(None, help="Labeled examples to train on.", metavar="FILE")
    task: str | None = option(
        None, help="The task of a model that is not fine-tuned: classify (default), pair, tag, ...", metavar="TASK"
    )


@verb(DoctorRequest, result="regard.training.doctor:DoctorResult", formats=(".csv", ".json"), http=False)
def doctor(request: DoctorRequest, models: Models) -> Generator[Event, None, DoctorResult]:
    """Look for ten common mistakes with a model and its data.

    A missing mask, wrong segment ids, a casing mismatch, labels truncated away, train/dev leakage, dropout left on,
    constant predictions, class imbalance, label noise by duplicates, wrong columns; for images the checks that apply,
    and wrong sizes. The exit code is 1 if a check reports an error.
    """
    from regard.tasks.registry import read_examples
    from regard.training.doctor import DoctorResult, examine, examined_model

    with models.use(request.model) as loaded:
        model = examined_model(loaded)
        task = model.task(request.task)
        sets = {}
        for name, path in (("data", request.data), ("train", request.train)):
            if path is not None:
                read = sets[name] = read_examples(task, path, table=table_options(request), labeled=True)
                examples = count_of(len(read.examples), "example")
                yield Note(message=f"{name}: {examples} of {read.path} ({read.description})")
        return DoctorResult(findings=examine(model, sets["data"], train=sets.get("train"), task=task))
