"""The tasks by name."""

from __future__ import annotations

from typing import Any

from regard.errors import check_choice
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, Regression, TextClassification
from regard.tasks.token_classification import TokenClassification

__all__ = ["TASKS", "get_task"]

TASKS: dict[str, type[Task[Any]]] = {
    task.name: task
    for task in (
        TextClassification,
        PairClassification,
        Regression,
        MultipleChoice,
        TokenClassification,
        QuestionAnswering,
    )
}


def get_task(name: str) -> type[Task[Any]]:
    check_choice("task", name, TASKS)
    return TASKS[name]
