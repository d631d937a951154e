"""All tasks, by name. A new task is one file and one entry here."""

from __future__ import annotations

from typing import Any

from regard.errors import check_choice
from regard.tasks.image_classification import ImageTask
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification

_ALL: tuple[type[Task[Any]], ...] = (
    TextClassification,
    PairClassification,
    Regression,
    MultipleChoice,
    TokenClassification,
    QuestionAnswering,
    ImageTask,
)
TASKS = {task.name: task for task in _ALL if not task.reads_images}
_IMAGE_TASKS = {task.name: task for task in _ALL if task.reads_images}


def get_task(name: str, *, images: bool = False) -> type[Task[Any]]:
    """The task with this name; `images` selects the one that reads images instead of texts."""
    tasks = _IMAGE_TASKS if images else TASKS
    check_choice("task for images" if images else "task", name, tasks)
    return tasks[name]
