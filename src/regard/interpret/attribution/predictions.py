"""The page's view "tasks": predictions of a fine-tuned model, with the evidence for each of them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from regard.errors import InputError
from regard.events import Event, Progress
from regard.interpret.attribution.attributions import Evidence, gather_evidence
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.prediction.result import PredictResult


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
    score: float
    logit: float
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


def evidence_events(result: PredictResult, fine_tuned: FineTunedModel) -> Generator[Event, None, None]:
    """Compute the evidence for the examples that the page of a result shows."""
    found: list[tuple[list[object], str]] = []
    documents = TypeAdapter(list[Evidence])
    for example, prediction in result.first:
        try:
            evidence = documents.dump_python(gather_evidence(fine_tuned, example, prediction), mode="json")
            found.append((evidence, ""))
        except InputError as error:
            found.append(([], str(error)))
        yield Progress(stage="attention and attributions", done=len(found), total=len(result.first), unit="examples")
    result._evidence = found
