"""Predictions of a fine-tuned model for examples, and the page's view "tasks" with the evidence for each of them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr
from typing_extensions import TypedDict

from regard.data.examples import ChoiceExample, Example, ImageExample, QuestionExample, TaggedExample, TextExample
from regard.errors import InputError
from regard.escaping import escape_json
from regard.events import Event, Progress, ResultItem
from regard.interpret.attribution.attributions import Evidence, gather_evidence
from regard.models.family import family_name
from regard.render.page_arrays import data_uri
from regard.render.result import Result, Table, round_floats
from regard.tasks.fine_tuned_model import CHUNK_SIZE, FineTunedModel, predict
from regard.tasks.task import Prediction

PAGE_EXAMPLES = 50  # examples that a page shows


@dataclass(frozen=True)
class TaskModelView:
    """The fine-tuned model; `several`: more than one label may hold."""

    name: str
    family: str
    task: str
    labels: list[str]
    several: bool


class EntityView(TypedDict):
    text: str
    label: str
    start: int
    end: int
    probability: float


class AnswerView(TypedDict):
    answer: str
    start: int
    end: int
    probability: float


class PredictionView(TypedDict, total=False):
    """A prediction; the task decides which keys there are."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    label: str | list[str]
    probabilities: dict[str, float] | list[float]
    value: float
    entities: list[EntityView]
    tags: list[str]
    answer: str
    start: int
    end: int
    probability: float
    nbest: list[AnswerView]
    margin: float | None
    choice: int
    ending: str


@dataclass(frozen=True)
class PredictedExample:
    """An example, its prediction and the evidence for it; `why` there is none."""

    texts: list[str]
    image: str | None
    prediction: PredictionView
    evidence: list[Evidence]
    why: str


class PredictionsView(BaseModel):
    """What the page's view "tasks" shows."""

    model: TaskModelView
    predictions: list[PredictedExample]
    notes: list[str]


class PredictResult(Result):
    """One prediction per example, in order."""

    page_view: ClassVar[str | None] = "tasks"
    view_type: ClassVar[str | None] = "regard.interpret.attribution.predictions:PredictionsView"

    model: str
    task: str
    predictions: list[Prediction]
    _view: PredictionsView = PrivateAttr()  # of the first examples
    _count: int = PrivateAttr(0)  # of all examples

    def to_text(self) -> str:
        return "\n".join(map(_json_line, self.predictions))

    def to_table(self) -> Table:
        """A column per key; of nested objects, such as probabilities, one per inner key: "probabilities.good"."""
        rows = [dict(_columns(one)) for one in self.predictions]
        headers = list(dict.fromkeys(key for row in rows for key in row))
        return headers, [[row.get(key) for key in headers] for row in rows]

    def view_data(self) -> dict[str, object]:
        view = self._view.model_dump(mode="json")
        for row in view["predictions"]:
            row["evidence"] = round_floats(row["evidence"])
        return view


def parse_example(fine_tuned: FineTunedModel, text: str, second: str | None = None) -> Example:
    """One example as a user types it; InputError says what the task reads if that is something else."""
    given = None if fine_tuned.task.reads_plain_text or not (second or "").strip() else second
    if fine_tuned.task.input_hint and given is None:
        raise InputError(fine_tuned.task.input_hint)
    example: Example = fine_tuned.task.example(text, given)
    return example


def prediction_events(
    name: str,
    fine_tuned: FineTunedModel,
    examples: Iterable[Example],
    *,
    chunk_size: int = CHUNK_SIZE,
    evidence: bool = False,
) -> Generator[Event, None, PredictResult]:
    """Predict any number of examples, `chunk_size` at a time, and yield each prediction as a `ResultItem`.

    The result holds the view of the first examples, with `evidence` if wanted, but not the predictions: whoever needs
    all of them collects the items. `name` is the folder of the model.
    """
    device, source = next(fine_tuned.model.parameters()).device, iter(examples)
    first: list[tuple[Example, Prediction]] = []
    count = 0
    while chunk := list(islice(source, chunk_size)):
        for pair in zip(chunk, predict(fine_tuned, chunk, device=device), strict=True):
            if len(first) < PAGE_EXAMPLES:
                first.append(pair)
            count += 1
            yield ResultItem(text=_json_line(pair[1]) + "\n", item=pair[1])
            yield Progress(stage="predicting", done=count, unit="examples")
    rows = []
    for example, prediction in first:
        rows.append(_predicted_example(fine_tuned, example, prediction, evidence=evidence))
        if evidence:
            yield Progress(stage="attention and attributions", done=len(rows), total=len(first), unit="examples")
    notes = [f"The first {len(rows):,} of {count:,} examples are shown."] if len(rows) < count else []
    result = predict_result(name, fine_tuned, rows, notes)
    result._count = count
    return result


def predict_result(
    name: str, fine_tuned: FineTunedModel, rows: Sequence[PredictedExample] = (), notes: Sequence[str] = ()
) -> PredictResult:
    """A result without predictions, with the data of its page."""
    task = fine_tuned.task
    several = task.problem_type == "multi_label_classification"
    model = TaskModelView(name, family_name(fine_tuned.model.encoder), task.name, list(task.labels), several)
    result = PredictResult(model=name, task=task.name, predictions=[])
    result._view = PredictionsView.model_construct(model=model, predictions=list(rows), notes=list(notes))
    return result


def _predicted_example(
    fine_tuned: FineTunedModel, example: Example, prediction: Prediction, *, evidence: bool
) -> PredictedExample:
    image = data_uri(example.pixels) if isinstance(example, ImageExample) else None
    found: list[Evidence] = []
    why = ""
    try:
        found = gather_evidence(fine_tuned, example, prediction) if evidence else []
    except InputError as error:
        why = str(error)
    return PredictedExample(_texts(example), image, cast(PredictionView, prediction), found, why)


def _texts(example: Example) -> list[str]:
    match example:
        case TextExample(text, second):
            return [text] if second is None else [text, second]
        case TaggedExample(text):
            return [text]
        case QuestionExample(_, question, context):
            return [question, context]
        case ChoiceExample(text, endings):
            return [text, *endings]
        case ImageExample(name=name):
            return [name]


def _json_line(prediction: Prediction) -> str:
    return escape_json(json.dumps(prediction, ensure_ascii=False))


def _columns(prediction: Prediction) -> Iterator[tuple[str, Any]]:
    for key, value in prediction.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", item) for inner, item in value.items())
        else:
            yield key, value
