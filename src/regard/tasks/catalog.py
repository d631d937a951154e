"""The tasks by name."""

from __future__ import annotations

from typing import Any

from regard.errors import choice
from regard.tasks.answer import Answering
from regard.tasks.base import Task
from regard.tasks.choose import Choose
from regard.tasks.tag import Tag
from regard.tasks.texts import Classify, Pair, Regress

__all__ = ["TASKS", "task_named"]

TASKS: dict[str, type[Task[Any]]] = {task.name: task for task in (Classify, Pair, Regress, Choose, Tag, Answering)}


def task_named(name: str) -> type[Task[Any]]:
    choice("task", name, TASKS)
    return TASKS[name]
