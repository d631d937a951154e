"""Bulk prediction: every task to every format, kept columns of all kinds, and constant memory."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from regard.checkpoints.loaded_model import LoadedModel
from regard.data import rows
from regard.events import drain
from regard.inference import prediction as bulk
from regard.inference.prediction import kind_of_cells
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.prediction.inputs import open_input
from regard.tasks.prediction.result import PredictResult
from tests.tasks.prediction.models import TASKS, random_model

RECORDS: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": "a film"}, {"text": None}, {"text": "so bad"}],
    "multi": [{"text": "a film"}, {"text": None}, {"text": "so bad"}],
    "pair": [{"premise": "a film", "hypothesis": "so long"}, {"premise": "a day", "hypothesis": None}],
    "regress": [{"text": "a film"}, {"text": ""}],
    "tag": [{"text": "they love a good film"}, {"text": None}],
    "answer": [{"question": "what", "context": "a good film"}, {"question": "what", "context": None}],
    "choose": [{"ctx": "the film", "endings": ["was good", "was bad"]}],
}


def write_predictions(model: FineTunedModel, source: Any, output: Path, **options: Any) -> PredictResult:
    keep = options.pop("keep", ())
    loaded = LoadedModel("model", model.model.encoder, model.tokenizer, fine_tuned=model)
    inputs = open_input(model.task, source, keep=keep)
    return drain(bulk.predict_file(loaded, model, inputs, output, settings={}, **options))


@pytest.mark.parametrize("name", TASKS)
def test_every_task_to_every_format(name: str, tiny_bert_folder: Path, tmp_path: Path) -> None:
    model = random_model(TASKS[name], tiny_bert_folder)
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[name]), encoding="utf-8")
    outputs = {suffix: tmp_path / f"out.{suffix}" for suffix in ("csv", "jsonl", "parquet")}
    for output in outputs.values():
        result = write_predictions(model, source, output)
        assert (result.rows, result.blank) == (len(RECORDS[name]), 1 if name != "choose" else 0)
    headers, cells = model.predict(source).to_table()
    expected = [dict(zip(headers, row, strict=True)) for row in cells]
    assert pyarrow.parquet.read_table(outputs["parquet"]).to_pylist() == expected
    assert [json.loads(line) for line in outputs["jsonl"].read_text("utf-8").splitlines()] == expected
    with outputs["csv"].open(encoding="utf-8", newline="") as file:
        for row, one in zip(csv.DictReader(file), expected, strict=True):
            for column, value in one.items():
                nested = isinstance(value, list)
                assert (json.loads(row[column]) if nested else row[column]) == (
                    value if nested else "" if value is None else str(value)
                )


def test_kept_columns_keep_their_types(tiny_bert_folder: Path, tmp_path: Path) -> None:
    model = random_model(TASKS["classify"], tiny_bert_folder)
    source = tmp_path / "in.jsonl"
    records = [
        {"text": "a film", "id": 7, "price": 1, "ok": True, "tags": ["a"], "mixed": 1, "label": "x", "none": None},
        {
            "text": "a day",
            "id": None,
            "price": 2.5,
            "ok": False,
            "tags": [],
            "mixed": "one",
            "label": "y",
            "none": None,
        },
    ]
    source.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    write_predictions(model, source, tmp_path / "out.parquet", keep=["all"])
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    types = {name: str(table.schema.field(name).type) for name in records[0]}
    assert types == {
        "text": "string",
        "id": "int64",
        "price": "double",
        "ok": "bool",
        "tags": "string",
        "mixed": "string",
        "label": "string",
        "none": "string",
    }
    assert table["label"].to_pylist() == ["x", "y"]
    assert "predicted_label" in table.column_names
    assert table["tags"].to_pylist() == ['["a"]', "[]"]
    write_predictions(model, tmp_path / "out.parquet", tmp_path / "again.jsonl", keep=["row", "id", "ok"])
    first = json.loads((tmp_path / "again.jsonl").read_text("utf-8").splitlines()[0])
    assert list(first)[:5] == ["input_row", "line", "row", "id", "ok"]


def test_kinds_of_cells() -> None:
    assert kind_of_cells(None, None) is None
    assert kind_of_cells("integer", None) == "integer"
    assert kind_of_cells("integer", 2.5) == "number"
    assert kind_of_cells("boolean", 1) == "json"
    assert kind_of_cells(None, 2**70) == "json"


def test_memory_does_not_grow_with_the_input(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows of 1,000 characters a shard of 100 is in memory; the forward pass is replaced."""
    monkeypatch.setattr(rows, "SAMPLE_LINES", 50)
    model = random_model(TASKS["classify"], tiny_bert_folder)
    groups: list[int] = []
    prediction = {"label": "bad", "probabilities": {"bad": 0.75, "good": 0.25}}

    def predict_rows(model: Any, group: Any) -> Generator[int, None, tuple[list[Any], int]]:
        groups.append(len(group))
        yield len(group)
        return [prediction for _ in group], 0

    monkeypatch.setattr(bulk, "predict_rows", predict_rows)
    peaks = []
    for count in (1_200, 2_700):  # more than the sample from which columns are inferred
        source, output = tmp_path / f"{count}.csv", tmp_path / f"out-{count}.csv"
        with source.open("w", encoding="utf-8") as file:
            file.write("id,text\n")
            file.writelines(f"{number},{'so long ' * 125}\n" for number in range(count))
        tracemalloc.start()
        try:
            write_predictions(model, source, output, keep=["id"], shard_size=100)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert max(groups) == 100
        with output.open(encoding="utf-8") as file:
            written = list(csv.DictReader(file))
        numbers = [str(number) for number in range(count)]
        assert [row["id"] for row in written] == [row["row"] for row in written] == numbers
    assert sum(groups) == 3_900
    assert peaks[1] < peaks[0] + 500_000  # the second file is 1.5 MB larger


def test_columns_of_one_name_keep_their_values(tiny_bert_folder: Path, tmp_path: Path) -> None:
    model = random_model(TASKS["classify"], tiny_bert_folder)
    (tmp_path / "in.csv").write_text("text,text,label\na film,so long,x\nso bad,a day,y\n", encoding="utf-8")
    write_predictions(model, tmp_path / "in.csv", tmp_path / "out.csv", keep=["all"])
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert all(len(row) == len(header) == len(set(header)) for row in rows)
    kept = [[row[header.index(name)] for name in ("text", "text_2", "label")] for row in rows]
    assert kept == [["a film", "so long", "x"], ["so bad", "a day", "y"]]
