"""All tasks by name, and their examples in files. A new task is one file and one entry here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from regard.data.examples import is_labeled
from regard.data.files import display_name, files_of
from regard.data.readers import ExampleSet, TableOptions, holds_images
from regard.errors import InputError, check_choice
from regard.tasks.image_classification import ImageTask
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.sequence_classification import SequenceClassification
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.tasks.token_tagging import TokenTagging

_ALL: tuple[type[Task[Any]], ...] = (
    TextClassification,
    PairClassification,
    Regression,
    MultipleChoice,
    TokenClassification,
    QuestionAnswering,
    ImageTask,
)
# The task of each head of transformers.
HEADS: Mapping[str, type[Task[Any]]] = {
    task.transformers_head: task
    for task in (SequenceClassification, MultipleChoice, TokenTagging, QuestionAnswering, ImageTask)
} | {"ImageClassificationWithTeacher": ImageTask}
DataSource = str | os.PathLike[str] | ExampleSet[Any]  # a file, or examples that were already read
TASKS = {task.name: task for task in _ALL if not task.reads_images}
_IMAGE_TASKS = {task.name: task for task in _ALL if task.reads_images}


def get_task(name: str, *, images: bool = False) -> type[Task[Any]]:
    """The task with this name; `images` selects the one that reads images instead of texts."""
    tasks = _IMAGE_TASKS if images else TASKS
    check_choice("task for images" if images else "task", name, tasks)
    return tasks[name]


def task_for(name: str, path: str | os.PathLike[str]) -> type[Task[Any]]:
    """The task with this name for the contents of a path, texts or images."""
    return get_task(name, images=name in _IMAGE_TASKS and holds_images(path))


def read_examples(
    task: str | Task[Any],
    path: str | os.PathLike[str],
    *,
    table: TableOptions | None = None,
    labeled: bool | None = None,
) -> ExampleSet[Any]:
    """The examples in a file, or in all files of a folder or a glob of texts, which are read as one.

    `task` is a name, or the task of a model. `labeled`: True requires labels, False ignores them, None reads them if
    any.
    """
    chosen, options = task_for(task, path) if isinstance(task, str) else type(task), table or TableOptions()
    files = None if chosen.reads_images else files_of(path)
    if files is None:
        return chosen.reader(path, options, labeled=labeled)
    return ExampleSet.joined([chosen.reader(file, options, labeled=labeled) for file in files], display_name(path))


def check_labels(task: Task[Any], examples: ExampleSet[Any]) -> None:
    """Raise InputError with file and line if a label is missing or unknown to the task."""
    for index, example in enumerate(examples.examples):
        try:
            if not is_labeled(example):
                raise InputError("the example has no label")
            task.check(example)
        except InputError as error:
            raise InputError(f"{examples.path} {examples.location(index)}: {error}") from None
