"""Where the course finds data that does not come with Regard: vocabularies and data sets of others."""

from __future__ import annotations

import os
from pathlib import Path

BERT_VOCABULARY = "vocab-bert-base-uncased/vocab.txt"
SST2 = "sst2/train.tsv"
CLONE = Path(__file__).resolve().parents[4]  # the folder of a clone of the repository
REVIEWS = Path(__file__).resolve().parents[1] / "reviews.tsv"  # short reviews of our own, with labels


def find_data(name: str) -> Path | None:
    """The path of a file of the data sets: in the folder that REGARD_DATA names, or in `shared/data` beside the clone;
    None if it is not there."""
    folders = [os.environ.get("REGARD_DATA"), CLONE.parent / "shared" / "data"]
    paths = [Path(folder) / name for folder in folders if folder]
    return next((path for path in paths if path.is_file()), None)


def missing_data(name: str) -> str:
    """What to say where the course would use a file that is not there."""
    return (
        f"{name} is not on this machine: put it into a folder and name that folder in the environment variable "
        "REGARD_DATA, as in REGARD_DATA=/path/to/data."
    )


def reviews() -> list[tuple[str, str]]:
    """The built-in reviews: a text and its label, good or bad."""
    rows = [line.split("\t") for line in REVIEWS.read_text(encoding="utf-8").splitlines()]
    return [(text, label) for text, label in rows]
