"""Answers in long or empty contexts: windows overlap, and each start is scored in one of them."""

from __future__ import annotations

import random

import pytest
import torch

from regard.data.examples import QuestionExample
from regard.tasks.fine_tuned_model import FineTunedModel, predict, score
from regard.tasks.inputs import InputBuilder
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.task import Prediction
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.table_model import TableModel, question_example

CPU = torch.device("cpu")


def table_model(
    rows: InputBuilder, encoder_of: Encoders, *, start: str, end: str, length: int = 64, threshold: float | None = None
) -> FineTunedModel:
    """An answer begins with the token `start` and ends with the token `end`."""
    table = torch.zeros(rows.tokenizer.size, 2)
    table[rows.tokenizer.id(start), 0] = 5.0
    table[rows.tokenizer.id(end), 1] = 5.0
    return FineTunedModel(
        QuestionAnswering(threshold), TableModel(encoder_of(rows.family), table), rows.tokenizer, length
    )


def run_model(fine_tuned: FineTunedModel, example: QuestionExample) -> Prediction:
    (one,) = predict(fine_tuned, [example], device=CPU)
    assert one["id"] == example.id
    for choice in one["nbest"]:
        assert choice["answer"] == example.context[choice["start"] : choice["end"]]
    assert sum(choice["probability"] for choice in one["nbest"]) == pytest.approx(1)
    return one


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_windows_record_whether_they_contain_the_answer(rows_of: Makers, family: str) -> None:
    rows = rows_of(family, 24)
    y, z = rows.tokenizer.id("y"), rows.tokenizer.id("z")
    whole, parts = 0, 0
    for position in range(30, 45):  # at some positions a window's edge cuts the answer
        words = ["x"] * 60
        words[position : position + 3] = ["y", "z", "y"]
        example = question_example(" ".join(words), "y z y")
        items = QuestionAnswering().preprocess([example], rows)
        for item in items:
            row = item.sequences[0].ids
            assert len(row) <= 24
            start, end = item.target
            if row.count(y) == 2:
                assert [number for number in row[start : end + 1] if number in (y, z)] == [y, z, y]
                assert (row[start], row[end]) == (y, y)
                whole += 1
            else:
                assert (start, end) == (0, 0)
                parts += y in row
        owned = [one for item in items for one, mine in zip(item.extra.offsets, item.extra.scored, strict=True) if mine]
        assert owned == rows.tokens([example.context])[0].offsets
    assert whole >= 15
    assert parts >= 1


def test_each_start_is_scored_where_it_has_the_most_context(rows_of: Makers) -> None:
    rows = rows_of("bert", 24)
    example = QuestionExample("q1", "who", " ".join("x" * 40))
    items = QuestionAnswering().preprocess([example], rows)
    logits = [torch.zeros(len(item), 2) for item in items]
    logits[0][items[0].extra.first + 1, 0] = 1.0
    for item, part in zip(items, logits, strict=True):
        for position, mine in enumerate(item.extra.scored):
            if not mine:  # positions that a window does not score must not count
                part[item.extra.first + position, 0] = 50.0
    (one,) = QuestionAnswering().postprocess([example], items, logits)
    assert sum(not mine for item in items for mine in item.extra.scored) > 10
    assert [choice["start"] for choice in one["nbest"]] == [2] * 5


def test_the_score_of_no_answer_is_the_minimum_over_windows(rows_of: Makers) -> None:
    example = QuestionExample("q1", "who", " ".join("x" * 40))
    items = QuestionAnswering().preprocess([example], rows_of("bert", 24))
    logits = [torch.zeros(len(item), 2) for item in items]
    for part in logits:
        part[0] = 10.0
    assert QuestionAnswering(0.0).postprocess([example], items, logits)[0]["answer"] == ""
    logits[1][0] = -1.0
    assert QuestionAnswering(0.0).postprocess([example], items, logits)[0]["answer"] != ""


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("length", [16, 24, 64])
def test_an_answer_is_found_at_every_position(rows_of: Makers, encoder_of: Encoders, family: str, length: int) -> None:
    spelled = ("film", "day") if family == "bert" else ("Ġfilm", "Ġday")
    fine_tuned = table_model(rows_of(family), encoder_of, start=spelled[0], end=spelled[1], length=length)
    for position in range(1, 40):
        words = ["x"] * 40
        words[position:position] = ["film", "day"]
        one = run_model(fine_tuned, QuestionExample("q1", "who", " ".join(words)))
        assert (one["answer"], one["start"]) == ("film day", 2 * position)


@pytest.mark.parametrize("position", [0, 1234, 2500, 4997])
def test_a_context_of_5000_words(rows_of: Makers, encoder_of: Encoders, position: int) -> None:
    fine_tuned = table_model(rows_of("bert"), encoder_of, start="film", end="day")
    rng = random.Random(0)
    words = [rng.choice(["x", "zebra", "the", "good"]) for _ in range(4997)]
    words[position:position] = ["film", "yy", "day"]
    example = question_example(" ".join(words), "film yy day")
    one = run_model(fine_tuned, example)
    assert (one["answer"], one["start"]) == ("film yy day", example.answers[0].start)
    assert score(fine_tuned, [example], device=CPU) == {"exact_match": 100.0, "f1": 100.0}


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("threshold", [None, 0.0])
@pytest.mark.parametrize("context", ["", "   ", "\n\t"])
def test_an_empty_context(
    rows_of: Makers, encoder_of: Encoders, family: str, threshold: float | None, context: str
) -> None:
    fine_tuned = table_model(rows_of(family), encoder_of, start="a", end="a", threshold=threshold)
    one = run_model(fine_tuned, QuestionExample("q1", "who", context))
    assert (one["answer"], one["start"], one["end"], one["probability"]) == ("", 0, 0, 1.0)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("length", [8, 13, 64])
def test_a_long_question_leaves_room_for_the_context(rows_of: Makers, family: str, length: int) -> None:
    rows = rows_of(family, length)
    example = QuestionExample("q1", "who " * 200, "x y z " * 40)
    items = QuestionAnswering().preprocess([example], rows)
    assert all(len(item) <= length for item in items)
    assert max(len(item) for item in items) == length
    assert sum(sum(item.extra.scored) for item in items) == len(rows.tokens([example.context])[0])
