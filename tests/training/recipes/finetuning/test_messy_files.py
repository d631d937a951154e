"""Training on files as people have them: missing values, spellings of labels, leakage, other encodings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.events import Note
from regard.tasks.fine_tuned_model import load_fine_tuned
from tests.training.recipes.finetuning.conftest import reviews

Tune = Callable[..., Any]
ONE_EPOCH = "training.num_epochs=1"


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = [line.split("\t") for line in reviews(60).splitlines()]
    return pd.DataFrame(rows, columns=["review", "label"])


def notes_of(tune: Tune, *arguments: Any, **options: Any) -> list[str]:
    events: list[Any] = []
    tune(*arguments, ONE_EPOCH, on_event=events.append, **options)
    return [event.message for event in events if isinstance(event, Note)]


def test_rows_without_a_text_or_label(tune: Tune, frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.loc[3, "label"], frame.loc[[5, 6], "review"] = None, float("nan")
    frame.loc[8, "review"] = 'two\r\nlines; "quoted" 😀'
    path = tmp_path / "messy.csv"
    path.write_bytes(b"\xef\xbb\xbf" + frame.to_csv(index=False, sep=";", lineterminator="\r\n").encode() + b"\r\n\r\n")
    with pytest.raises(InputError, match=r"messy\.csv line 5 has no label \(label\); .*--missing skip"):
        tune(tmp_path / "run", ONE_EPOCH, train=path, dev=None)
    assert not (tmp_path / "run").exists()
    notes = notes_of(tune, tmp_path / "run", train=path, dev=None, table=TableOptions(missing="skip"))
    assert "train: 1 left out: has no label (label)" in notes
    assert "train: 2 left out: has no text (review)" in notes
    assert "semicolon-separated, quoted, header, text = review, label = label" in notes[0]
    document = json.loads((tmp_path / "run" / "task.json").read_text())
    assert document["texts"] == ["review"]
    assert load_fine_tuned(tmp_path / "run").text_columns == ("review",)


def test_spellings_of_labels_are_pointed_out(tune: Tune, frame: pd.DataFrame, tmp_path: Path) -> None:
    frame["label"] = frame["label"].str.upper()
    most = frame["label"].value_counts()
    frame.loc[0, "label"], frame.loc[1, "label"] = str(frame.loc[0, "label"]).lower(), f" {frame.loc[1, 'label']} "
    frame.to_csv(tmp_path / "train.csv", index=False, encoding="latin-1")
    notes = notes_of(
        tune, tmp_path / "run", train=tmp_path / "train.csv", dev=tmp_path / "train.csv",
        table=TableOptions(encoding="latin-1"),
    )  # fmt: skip
    (spelling,) = (note for note in notes if "differ only in case or spaces" in note)
    label = str(frame.loc[0, "label"]).upper()
    assert spelling.startswith(
        f"warning: the labels '{label}' ({most[label] - 1}) and '{label.lower()}' (1) differ only"
    )
    assert f"train: 1 label without the spaces around them, such as {frame.loc[1, 'label']!r}" in notes
    # The run goes on, so nothing is called an error.
    assert any(note.startswith("warning: train/dev leakage: 60 of 60 texts (100.0%)") for note in notes)
    assert not any(note.startswith("error") for note in notes)


def test_the_names_of_a_pair_are_stored(tune: Tune, frame: pd.DataFrame, tmp_path: Path) -> None:
    pairs = frame.rename(columns={"review": "premise"}).assign(hypothesis=frame["review"])
    pairs.to_parquet(tmp_path / "pairs.parquet")
    tune(tmp_path / "run", ONE_EPOCH, task="pair", train=tmp_path / "pairs.parquet", dev=None)
    assert load_fine_tuned(tmp_path / "run").text_columns == ("premise", "hypothesis")
