"""The data of a fine-tuning run: the examples by split, and a digest of them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from typing import Any

from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.data.split import split_examples
from regard.errors import InputError
from regard.tasks.registry import read_examples

DEFAULT_SPLIT = "90/10"
DataSource = str | os.PathLike[str] | ExampleSet[Any]  # a file, or examples that were already read


def read_splits(
    task: str, train: DataSource, dev: DataSource | None, *, table: TableOptions | None, split_sizes: str | None
) -> dict[str, ExampleSet[Any]]:
    """The examples by split: train, dev, and test if `split_sizes` has three parts. Without `dev`, train is split."""

    def read(source: DataSource) -> ExampleSet[Any]:
        return source if isinstance(source, ExampleSet) else read_examples(task, source, table=table, labeled=True)

    whole = read(train)
    if dev is not None:
        if split_sizes is not None:
            raise InputError("--dev and --split both choose the dev data; use one of them")
        return {"train": whole, "dev": read(dev)}
    sizes = split_sizes or DEFAULT_SPLIT
    return {
        name: ExampleSet(
            [whole.examples[index] for index in indices],
            whole.path,
            f"{whole.description}; {name} part of {sizes}",
            whole.dropped if name == "train" else {},
            [whole.lines[index] for index in indices] if whole.lines else [],
            whole.unit,
        )
        for name, indices in zip(("train", "dev", "test"), split_examples(whole.examples, sizes), strict=False)
    }


def digest(read: ExampleSet[Any]) -> str:
    """A hash of the examples in their order."""
    result = hashlib.sha256()
    for example in read.examples:
        result.update(_stable_repr(example).encode("utf-8", "surrogatepass"))
        if isinstance(example, ImageExample):
            result.update(example.pixels.tobytes())
    return result.hexdigest()[:16]


# Names of classes and fields in earlier versions, which computed the same digests with them.
_NAMES = {"TextExample": "Text", "ChoiceExample": "Choice", "TaggedExample": "Tagged", "QuestionExample": "Question"}
_NAMES |= {"ImageExample": "Picture", "text_pair": "second", "answerable": "possible"}


def _stable_repr(example: Any) -> str:
    """The representation of an example, with the names of earlier versions."""
    values = (
        f"{_NAMES.get(field.name, field.name)}={getattr(example, field.name)!r}"
        for field in fields(example)
        if field.repr
    )
    return f"{_NAMES.get(type(example).__name__)}({', '.join(values)})"
