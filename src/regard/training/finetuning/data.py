"""The examples of a run: read, cut into parts where only one file is given, and told apart from others by a digest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from typing import Any

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.data.split import split_examples
from regard.errors import InputError
from regard.tasks.read_examples import read_examples

__all__ = ["Source", "digest", "read_data"]

Source = str | os.PathLike[str] | ExampleSet[Any]  # a file, or what a reader made of it


def read_data(
    task: str, train: Source, dev: Source | None, *, table: TableOptions | None, parts: str | None
) -> dict[str, ExampleSet[Any]]:
    found = {
        "train": read_examples(task, train, table=table, labeled=True) if not isinstance(train, ExampleSet) else train
    }
    if dev is not None:
        if parts is not None:
            raise InputError("--dev and --split both say what to judge on; use one of them")
        found["dev"] = read_examples(task, dev, table=table, labeled=True) if not isinstance(dev, ExampleSet) else dev
    else:
        whole = found["train"]
        pieces = split_examples(whole.examples, parts or "90/10")
        for name, places in zip(("train", "dev", "test"), pieces, strict=False):
            found[name] = ExampleSet(
                [whole.examples[place] for place in places],
                whole.path,
                f"{whole.description}; {name} part of {parts or '90/10'}",
                whole.dropped if name == "train" else {},
                [whole.lines[place] for place in places] if whole.lines else [],
                whole.unit,
            )
    return found


def digest(read: ExampleSet[Any]) -> str:
    """The same for the same examples in the same order."""
    found = hashlib.sha256()
    for example in read.examples:
        found.update(_stable_repr(example).encode("utf-8", "surrogatepass"))
        if isinstance(example, ImageExample):
            found.update(example.pixels.tobytes())
    return found.hexdigest()[:16]


# The names that the digests of earlier runs were computed with.
_NAMES = {"TextExample": "Text", "ChoiceExample": "Choice", "TaggedExample": "Tagged", "QuestionExample": "Question"}
_NAMES |= {"ImageExample": "Picture", "text_pair": "second", "answerable": "possible"}


def _stable_repr(example: Any) -> str:
    """The representation of an example, whatever its class and fields are called."""
    shown = (f"{_NAMES.get(one.name, one.name)}={getattr(example, one.name)!r}" for one in fields(example) if one.repr)
    return f"{_NAMES.get(type(example).__name__)}({', '.join(shown)})"
