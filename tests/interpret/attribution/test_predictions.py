"""Predictions: data of the "tasks" view, and the commands that reproduce them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import ChoiceExample, ImageExample, QuestionExample, TaggedExample, TextExample
from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.events import drain
from regard.interpret.attribution.predictions import parse_example, prediction_events
from regard.models import Vit, VitConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, predict, save_fine_tuned
from regard.tasks.image_classification import ImageClassifier, ImageTask
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.registry import new_examples
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.verbs import find

CPU = torch.device("cpu")
TYPED: list[tuple[Task[Any], tuple[str, ...], Any]] = [
    (TextClassification(["bad", "good"]), ('the film\'s "good"',), TextExample('the film\'s "good"')),
    (PairClassification(["no", "yes"]), ("the film", "so long"), TextExample("the film", "so long")),
    (Regression(0.0, 1.0), ("the film", "so long"), TextExample("the film", "so long")),
    (TokenClassification(["O", "B-X", "I-X"]), ("we see",), TaggedExample("we see", ((0, 2), (3, 6)))),
    (QuestionAnswering(), ("what film", "the film is good"), QuestionExample("", "what film", "the film is good")),
    (MultipleChoice(), ("the film", "is good\nis bad\n"), ChoiceExample("the film", ("is good", "is bad"))),
]
NAMES = [task.name for task, _, _ in TYPED]


@pytest.fixture
def fine_tuned(tiny_bert_folder: Path) -> Any:
    def make(task: Task[Any]) -> FineTunedModel:
        encoder, tokenizer = regard.load(tiny_bert_folder)
        torch.manual_seed(1)
        return FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)

    return make


def view(model: FineTunedModel, *examples: Any) -> dict[str, Any]:
    data: dict[str, Any] = drain(prediction_events("DIR", model, examples, evidence=True)).page_data()
    return data


@pytest.mark.parametrize(("task", "texts", "example"), TYPED, ids=NAMES)
def test_predictions_for_single_examples(
    fine_tuned: Any, tmp_path: Path, task: Task[Any], texts: tuple[str, ...], example: Any
) -> None:
    model = fine_tuned(task)
    assert parse_example(model, *texts) == example
    expected = predict(model, [example], device=CPU)[0]
    data = view(model, example)
    assert data["view"] == "tasks"
    (shown,) = data["predictions"]
    assert shown["prediction"] == expected
    assert bool(shown["evidence"]) is (task.name != "choose" and expected.get("entities") != [])
    json.dumps(data, allow_nan=False)
    save_fine_tuned(model, tmp_path / "DIR")
    result = regard.predict(tmp_path / "DIR", [texts if len(texts) > 1 else texts[0]], device="cpu")
    assert result.predictions == [expected]
    # Commands that reproduce the result: Python makes the same call, and the shell pipes the same example.
    python, scope = result._reproduce["python"], {"regard": regard}
    assert eval(python.partition("\n\n")[2], scope).predictions == [expected]
    options = "" if len(texts) == 1 else "--columns 0,1 "
    if task.name == "choose":  # several endings do not fit into one line
        assert result._reproduce["cli"] == f"regard predict {options}{tmp_path / 'DIR'} FILE"
        return
    source, _, command = result._reproduce["cli"].rpartition(" | ")
    assert command == f"regard predict {options}{tmp_path / 'DIR'} -"
    (tmp_path / "lines.txt").write_bytes(subprocess.run(["bash", "-c", source], capture_output=True, check=True).stdout)
    (read,) = new_examples(task.name, str(tmp_path / "lines.txt"), table=TableOptions.parse("0,1" if options else None))
    assert predict(model, [read], device=CPU)[0] == {**expected, **({"id": read.id} if task.name == "answer" else {})}


@pytest.mark.parametrize(
    "task", [PairClassification(["no", "yes"]), QuestionAnswering(), MultipleChoice()], ids=["pair", "answer", "choose"]
)
def test_a_missing_second_text_is_an_error(fine_tuned: Any, task: Task[Any]) -> None:
    with pytest.raises(InputError, match="This model"):
        parse_example(fine_tuned(task), "the film", " ")


def test_long_text_has_a_prediction_and_an_explanation_for_missing_evidence(fine_tuned: Any) -> None:
    (shown,) = view(fine_tuned(TextClassification(["bad", "good"])), TextExample("the film " * 60))["predictions"]
    assert shown["evidence"] == []
    assert "shorten it" in shown["why"]
    assert sum(shown["prediction"]["probabilities"].values()) == pytest.approx(1)


def test_image_prediction() -> None:
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
    example = ImageExample(np.arange(64, dtype=np.uint8).reshape(8, 8), name="a.png")
    (shown,) = view(model, example)["predictions"]
    assert shown["image"].startswith("data:image/png;base64,")
    assert shown["prediction"] == predict(model, [example], device=CPU)[0]


def test_reader_options_are_reproduced(fine_tuned: Any, tmp_path: Path) -> None:
    save_fine_tuned(fine_tuned(QuestionAnswering(0.5)), tmp_path / "DIR")
    file = tmp_path / "questions.csv"
    file.write_text("q;c\nwhat film;the film is good\nwhat day;it was a long day\n", encoding="utf-8")
    options: dict[str, Any] = {"columns": ["q", "c"], "header": True, "delimiter": ";", "threshold": 0.5}
    result = regard.predict(tmp_path / "DIR", file, **options)
    words = f"--columns q,c --header --delimiter ';' --threshold 0.5 {tmp_path / 'DIR'} {file}"
    assert result._reproduce["cli"] == f"regard predict {words}"
    assert eval(result._reproduce["python"].partition("\n\n")[2], {"regard": regard}) == result


def test_table_of_predictions(fine_tuned: Any, tmp_path: Path) -> None:
    save_fine_tuned(fine_tuned(TextClassification(["bad", "good"])), tmp_path / "DIR")
    result = regard.predict(tmp_path / "DIR", ["the film", "a day"])
    headers, rows = result.to_table()
    assert headers == ["text", "label", "probabilities.bad", "probabilities.good"]
    assert [row[0] for row in rows] == ["the film", "a day"]
    result.save(tmp_path / "predictions.csv")
    assert (tmp_path / "predictions.csv").read_text().startswith("text,label,probabilities.bad")


def test_command_does_not_store_predictions(fine_tuned: Any, tmp_path: Path) -> None:
    save_fine_tuned(fine_tuned(TextClassification(["bad", "good"])), tmp_path / "DIR")
    from regard.verbs.python import LocalModels

    verb = find("predict")
    request = verb.parse({"model": str(tmp_path / "DIR"), "source": ["the film", "a day"]})
    result: Any = drain(verb.run(request, LocalModels("cpu"), keep=False))
    assert result.predictions == []
    assert result._count == 2
