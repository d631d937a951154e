"""The view "tasks": predictions equal those of `regard predict`, and the lines beside them say the same."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import ChoiceExample, ImageExample, QuestionExample, TaggedExample, TextExample
from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.interpret.attribution.predictions import parse_example, predict_texts, predictions_payload
from regard.models import Vit, VitConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, predict, save_fine_tuned
from regard.tasks.image_classification import ImageClassifier, ImageTask
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.registry import read_examples
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification

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
def solved(tiny_bert_folder: Path) -> Any:
    def make(task: Task[Any]) -> FineTunedModel:
        encoder, tokenizer = regard.load(tiny_bert_folder)
        torch.manual_seed(1)
        return FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)

    return make


@pytest.mark.parametrize(("task", "texts", "example"), TYPED, ids=NAMES)
def test_typed(solved: Any, tmp_path: Path, task: Task[Any], texts: tuple[str, ...], example: Any) -> None:
    model = solved(task)
    assert parse_example(model, *texts) == example
    expected = predict(model, [example], device=CPU)[0]
    assert predict_texts(model, *texts) == expected
    payload: dict[str, Any] = predictions_payload("DIR", model, [example])
    assert payload["view"] == "tasks"
    (shown,) = payload["predictions"]
    assert shown["prediction"] == expected
    assert bool(shown["evidence"]) is (task.name != "choose" and expected.get("entities") != [])
    json.dumps(payload, allow_nan=False)
    # The command line gives a line of JSON to `regard predict`, which reads the same example from it.
    words = shlex.split(payload["cli"])
    assert words[-6:] == ["regard", "predict", "--page", "page.html", "DIR", "-"]
    (tmp_path / "lines.jsonl").write_text(words[2] + "\n", encoding="utf-8")
    (read,) = read_examples(task.name, tmp_path / "lines.jsonl", labeled=False).examples
    assert predict(model, [read], device=CPU)[0] == {**expected, **({"id": read.id} if task.name == "answer" else {})}
    # The line of Python says the same.
    save_fine_tuned(model, tmp_path / "DIR")
    *opening, last = payload["python"].replace("'DIR'", repr(str(tmp_path / "DIR"))).splitlines()
    space: dict[str, Any] = {}
    exec("\n".join(opening), space)
    assert eval(last, space) == expected


@pytest.mark.parametrize(
    "task", [PairClassification(["no", "yes"]), QuestionAnswering(), MultipleChoice()], ids=["pair", "answer", "choose"]
)
def test_second_text_is_asked_for(solved: Any, task: Task[Any]) -> None:
    with pytest.raises(InputError, match="This model"):
        parse_example(solved(task), "the film", " ")


def test_given_predictions_are_shown_as_they_are(solved: Any) -> None:
    model = solved(TextClassification(["bad", "good"]))
    examples = [TextExample("the film"), TextExample("good <b>film</b>")]
    told = [{"text": "x", "label": "bad", "probabilities": {"bad": 0.75, "good": 0.25}}] * 2
    done: list[int] = []
    payload: dict[str, Any] = predictions_payload(
        "DIR", model, examples, told, source="file name.tsv", notes=["a note"], on_done=lambda: done.append(1)
    )
    assert [one["prediction"] for one in payload["predictions"]] == told
    assert payload["notes"] == ["a note"]
    assert payload["cli"] == "regard predict --page page.html DIR 'file name.tsv'"
    assert "new_examples(fine_tuned.task.name, 'file name.tsv', table=TableOptions(" in payload["python"]
    assert len(done) == 2


def test_long_text_has_a_prediction_and_says_why_there_is_no_more(solved: Any) -> None:
    payload: dict[str, Any] = predictions_payload(
        "DIR", solved(TextClassification(["bad", "good"])), [TextExample("the film " * 60)]
    )
    (shown,) = payload["predictions"]
    assert shown["evidence"] == []
    assert "shorten it" in shown["why"]
    assert sum(shown["prediction"]["probabilities"].values()) == pytest.approx(1)


def test_picture() -> None:
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
    payload: dict[str, Any] = predictions_payload("DIR", model, [example])
    (shown,) = payload["predictions"]
    assert shown["image"].startswith("data:image/png;base64,")
    assert shown["prediction"] == predict(model, [example], device=CPU)[0]
    assert payload["cli"] == "regard predict --page page.html DIR a.png"
    with pytest.raises(InputError, match="no such file"):
        parse_example(model, "nothing.png")


def test_lines_repeat_what_was_said_of_a_file(solved: Any, tmp_path: Path) -> None:
    model = solved(QuestionAnswering(0.5))
    save_fine_tuned(model, tmp_path / "DIR")
    file = tmp_path / "questions.csv"
    file.write_text("q;c\nwhat film;the film is good\nwhat day;it was a long day\n", encoding="utf-8")
    table = TableOptions.parse("q,c", header=True, delimiter=";")
    examples = read_examples("answer", file, table=table, labeled=False).examples
    payload: dict[str, Any] = predictions_payload(
        str(tmp_path / "DIR"), model, examples, source=str(file), table=table, threshold=0.5
    )
    options = ["--columns", "q,c", "--header", "--delimiter", ";", "--threshold=0.5", "--page", "page.html"]
    assert shlex.split(payload["cli"]) == ["regard", "predict", *options, str(tmp_path / "DIR"), str(file)]
    *opening, last = payload["python"].splitlines()
    space: dict[str, Any] = {}
    exec("\n".join(opening), space)
    assert eval(last, space) == [one["prediction"] for one in payload["predictions"]]


def test_lines_of_several_typed_examples(solved: Any, tmp_path: Path) -> None:
    model = solved(PairClassification(["no", "yes"]))
    save_fine_tuned(model, tmp_path / "DIR")
    examples = [TextExample("the film", "is long"), TextExample("a day", "is hot")]
    payload: dict[str, Any] = predictions_payload(
        str(tmp_path / "DIR"), model, examples, table=TableOptions(("a", "b"))
    )
    assert shlex.split(payload["cli"])[2:5] == [
        '{"text_a": "the film", "text_b": "is long"}',
        '{"text_a": "a day", "text_b": "is hot"}',
        "|",
    ]
    assert "--columns" not in payload["cli"]  # lines of JSON have names of their own
    *opening, last = payload["python"].splitlines()
    space: dict[str, Any] = {}
    exec("\n".join(opening), space)
    found = eval(last, {**space})
    assert [one["label"] for one in found] == [one["prediction"]["label"] for one in payload["predictions"]]
    assert found[0]["probabilities"] == pytest.approx(payload["predictions"][0]["prediction"]["probabilities"])
