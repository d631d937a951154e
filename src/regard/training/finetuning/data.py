"""The examples of a run: read, cut into parts where only one file is given, and told apart from others by a digest."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from regard.data.examples import Picture
from regard.data.readers import Read
from regard.data.split import split
from regard.errors import InputError
from regard.training.finetuning.sources import Table, read_examples

__all__ = ["Source", "digest", "read_data"]

Source = str | os.PathLike[str] | Read[Any]  # a file, or what a reader made of it


def read_data(
    task: str, train: Source, dev: Source | None, *, table: Table | None, parts: str | None
) -> dict[str, Read[Any]]:
    found = {"train": read_examples(task, train, table=table, labelled=True) if not isinstance(train, Read) else train}
    if dev is not None:
        if parts is not None:
            raise InputError("--dev and --split both say what to judge on; use one of them")
        found["dev"] = read_examples(task, dev, table=table, labelled=True) if not isinstance(dev, Read) else dev
    else:
        whole = found["train"]
        pieces = split(whole.examples, parts or "90/10")
        for name, places in zip(("train", "dev", "test"), pieces, strict=False):
            found[name] = Read(
                [whole.examples[place] for place in places],
                whole.path,
                f"{whole.how}; {name} part of {parts or '90/10'}",
                whole.dropped if name == "train" else {},
                [whole.lines[place] for place in places] if whole.lines else [],
                whole.unit,
            )
    return found


def digest(read: Read[Any]) -> str:
    """The same for the same examples in the same order."""
    found = hashlib.sha256()
    for example in read.examples:
        found.update(repr(example).encode("utf-8", "surrogatepass"))
        if isinstance(example, Picture):
            found.update(example.pixels.tobytes())
    return found.hexdigest()[:16]
