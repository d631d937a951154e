"""The "tasks" view of predictions with evidence, and the commands that reproduce predictions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import ImageExample, TextExample
from regard.data.readers import TableOptions
from regard.events import drain
from regard.interpret.attribution.predictions import PredictionsView, evidence_events
from regard.models import Vit, VitConfig
from regard.tasks.fine_tuned_model import FineTunedModel, predict
from regard.tasks.image_classification import ImageClassifier, ImageTask
from regard.tasks.prediction.inputs import open_input
from regard.tasks.prediction.result import PredictResult
from regard.tasks.question_answering import QuestionAnswering
from regard.verbs import find
from tests.tasks.prediction.models import TASKS, random_model

CPU = torch.device("cpu")
TYPED: dict[str, tuple[str, ...]] = {
    "classify": ('the film\'s "good"',),
    "pair": ("the film", "so long"),
    "regress": ("the film", "so long"),
    "tag": ("we see",),
    "answer": ("what film", "the film is good"),
    "choose": ("the film", "is good\nis bad\n"),
}


@pytest.fixture
def make(tiny_bert_folder: Path) -> Callable[[Any], FineTunedModel]:
    return lambda task: random_model(TASKS[task] if isinstance(task, str) else task, tiny_bert_folder)


def view(model: FineTunedModel, result: PredictResult) -> dict[str, Any]:
    drain(evidence_events(result, model))
    data = result.page_data()
    PredictionsView.model_validate(data)
    json.dumps(data, allow_nan=False)
    return data


@pytest.mark.parametrize("name", TYPED)
def test_predictions_for_single_examples(name: str, make: Any, tmp_path: Path) -> None:
    model, texts = make(name), TYPED[name]
    example = model.task.example(*texts)
    expected = predict(model, [example], device=CPU)[0]
    source = [texts if len(texts) > 1 else texts[0]]
    data = view(model, model.predict(source))
    assert data["view"] == "tasks"
    (shown,) = data["predictions"]
    assert shown["prediction"] == expected
    assert bool(shown["evidence"]) is (name != "choose" and expected.get("entities") != [])
    model.save(tmp_path / "DIR")
    result = regard.predict(tmp_path / "DIR", source, device="cpu")
    assert result.predictions == [{"row": 0, **expected}]
    # Commands that reproduce the result: Python makes the same call, and the shell pipes the same example.
    python, scope = result._reproduce["python"], {"regard": regard}
    assert eval(python.partition("\n\n")[2], scope).predictions == result.predictions
    options = "" if len(texts) == 1 else "--columns 0,1 "
    if name == "choose":  # several endings do not fit into one line
        assert result._reproduce["cli"] == f"regard predict {options}{tmp_path / 'DIR'} FILE"
        return
    piped, _, command = result._reproduce["cli"].rpartition(" | ")
    assert command == f"regard predict {options}{tmp_path / 'DIR'} -"
    (tmp_path / "lines.txt").write_bytes(subprocess.run(["bash", "-c", piped], capture_output=True, check=True).stdout)
    table = TableOptions.parse("0,1" if options else None)
    (row,) = open_input(model.task, tmp_path / "lines.txt", table=table).rows
    assert row.example == example


def test_long_text_has_a_prediction_and_an_explanation_for_missing_evidence(make: Any) -> None:
    model = make("classify")
    (shown,) = view(model, model.predict(["the film " * 60]))["predictions"]
    assert shown["evidence"] == []
    assert "shorten it" in shown["why"]
    assert sum(shown["prediction"]["probabilities"].values()) == pytest.approx(1)


def test_image_prediction(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    torch.manual_seed(0)
    config = VitConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=(8, 8),
        patch_size=(4, 4),
        num_channels=1,
        num_labels=2,
    )
    model = FineTunedModel(ImageTask(["cat", "dog"]), ImageClassifier(Vit(config)).eval(), None, 0)
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    result = model.predict(tmp_path / "a.png")
    (shown,) = view(model, result)["predictions"]
    assert shown["image"].startswith("data:image/png;base64,")
    example = ImageExample(pixels, name=str(tmp_path / "a.png"))
    assert shown["prediction"] == predict(model, [example], device=CPU)[0]
    headers, rows = result.to_table()
    assert headers == ["row", "line", "image", "label", "probability", "p_cat", "p_dog"]
    assert rows[0][2] == str(tmp_path / "a.png")


def test_reader_options_are_reproduced(make: Any, tmp_path: Path) -> None:
    make(QuestionAnswering(0.5)).save(tmp_path / "DIR")
    file = tmp_path / "questions.csv"
    file.write_text("q;c\nwhat film;the film is good\nwhat day;it was a long day\n", encoding="utf-8")
    options: dict[str, Any] = {"columns": ["q", "c"], "header": True, "delimiter": ";", "threshold": 0.5}
    result = regard.predict(tmp_path / "DIR", file, **options)
    words = f"--columns q,c --header --delimiter ';' --threshold 0.5 {tmp_path / 'DIR'} {file}"
    assert result._reproduce["cli"] == f"regard predict {words}"
    again = eval(result._reproduce["python"].partition("\n\n")[2], {"regard": regard, "Path": Path})
    assert again.to_dict() == result.to_dict()


def test_table_of_predictions(make: Any, tmp_path: Path) -> None:
    result = make("classify").predict(["the film", "a day"])
    assert list(result.to_pandas().columns) == ["row", "label", "probability", "p_bad", "p_good"]
    result.save(tmp_path / "predictions.csv")
    assert (tmp_path / "predictions.csv").read_text().startswith("row,label,probability,p_bad,p_good\n0,")


def test_command_does_not_store_predictions(make: Any, tmp_path: Path) -> None:
    make("classify").save(tmp_path / "DIR")
    from regard.verbs.python import LocalModels

    verb = find("predict")
    request = verb.parse({"model": str(tmp_path / "DIR"), "source": ["the film", "a day"]})
    result: Any = drain(verb.run(request, LocalModels("cpu"), keep=False))
    assert result.predictions == []
    assert result.rows == 2
    assert [example for example, _ in result.first] == [TextExample("the film"), TextExample("a day")]
