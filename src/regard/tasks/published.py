"""A published model with a task head: what its config.json says of the task. It needs no task.json.

The classes are those of transformers, such as BertForSequenceClassification. What a config asks for and Regard does not
do is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.checkpoints.configs import parse_config, task_class
from regard.checkpoints.cross_encoder import CROSS_ENCODER_KEYS
from regard.checkpoints.file_format import FileFormat, format_of
from regard.errors import InputError
from regard.models.family import get_family
from regard.tasks.registry import HEADS
from regard.tasks.task import Task

# Keys of config.json that describe the head, which a saved model keeps.
HEAD_KEYS = ("architectures", "id2label", "label2id", "num_labels", "problem_type", "pad_token_id", *CROSS_ENCODER_KEYS)


def published_task(document: Mapping[str, Any], path: Path) -> Task[Any]:
    """The task of a config.json whose class has a task head; `path` is that of the file."""
    found = task_class(path.parent)
    if found is None:
        raise InputError(
            f"{path}: architectures names no class with a task head, such as BertForSequenceClassification"
        )
    try:
        return HEADS[found[1]].from_config(document)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def check_head(document: Mapping[str, Any], path: Path) -> FileFormat:
    """The file format of the family; InputError for a class or a key of the head that Regard does not support."""
    family = str(parse_config(document, path).family)
    file, found = format_of(family), task_class(path.parent)
    assert file is not None and found is not None
    named = "For".join(found)
    if found[0] not in (file.class_prefix, *file.old_class_prefixes):
        raise InputError(
            f"{path}: architectures is {named}, and the classes of model_type {document['model_type']!r} begin with "
            f"{file.class_prefix}; correct one of them"
        )
    if not file.supports(found[1]):
        raise InputError(
            f"{path}: architectures is {named}; Regard supports no such head of {get_family(family).title}"
        )
    for key, supported in file.head_values.items():
        if key in document and document[key] not in supported:
            choices = ", ".join(map(str, supported))
            raise InputError(f"{path}: {key} is {str(document[key])[:60]!r}; Regard's {family} supports only {choices}")
    return file


def head_config(document: Mapping[str, Any], file: FileFormat) -> dict[str, object]:
    """The keys of config.json that describe the head."""
    return {key: document[key] for key in (*HEAD_KEYS, *file.head_values) if key in document}
