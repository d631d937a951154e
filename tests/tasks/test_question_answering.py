"""Answers: from characters to tokens and back, in windows, and the choice of the best span."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.data.examples import QuestionExample
from regard.data.readers import read_question_examples
from regard.tasks.inputs import InputBuilder
from regard.tasks.question_answering import MAX_ANSWER_LENGTH, QuestionAnswering
from regard.tasks.task import Prediction, TaskInput
from regard.text import Tokenizer
from tests.tasks.conftest import Makers
from tests.tasks.table_model import question_example

CPU = torch.device("cpu")


def single(rows: InputBuilder, context: str) -> tuple[QuestionExample, TaskInput]:
    example = QuestionExample("q1", "who", context)
    (item,) = QuestionAnswering().preprocess([example], rows)
    return example, item


def predict(example: QuestionExample, item: TaskInput, logits: Tensor, threshold: float | None = None) -> Prediction:
    (one,) = QuestionAnswering(threshold).postprocess([example], [item], [logits])
    return one


def test_whether_there_may_be_no_answer_is_learned() -> None:
    assert QuestionAnswering.from_examples([question_example("x y", "y")]).threshold is None
    task = QuestionAnswering.from_examples([question_example("x y", "y"), question_example("x y", answerable=False)])
    assert task.threshold == 0.0
    assert [
        QuestionAnswering.from_dict(QuestionAnswering(value).to_dict()).threshold for value in (None, 0.0, -1.5)
    ] == [
        None,
        0.0,
        -1.5,
    ]
    assert task.num_outputs == 2


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("the film good day", "film good"),
        ("film", "film"),
        (
            "\u00c9l\u00e9phant  na\u00efve \U0001f600\U0001f600 caf\u00e9, d\u00e0y!",
            "na\u00efve \U0001f600\U0001f600 caf\u00e9",
        ),
        ("x \u4e2d\u6587 zebra", "\u4e2d\u6587"),
        ("e\u0301 (Film) day", "Film"),
    ],
)
def test_an_answer_to_its_tokens_and_back(rows_of: Makers, family: str, context: str, answer: str) -> None:
    rows = rows_of(family)
    example = question_example(context, answer)
    (item,) = QuestionAnswering().preprocess([example], rows)
    start, end = item.target
    logits = torch.zeros(len(item), 2)
    logits[start, 0] = logits[end, 1] = 5.0
    one = predict(example, item, logits)
    assert (one["answer"], one["start"]) == (answer, context.index(answer))
    inside = item.sequences[0].ids[start : end + 1]
    assert rows.tokenizer.decode(inside).strip() == rows.tokenizer.decode(rows.tokens([answer])[0].ids).strip()


def test_answers_of_squad_to_their_tokens_and_back(shared_data: Callable[[str], Path]) -> None:
    rows = InputBuilder(Tokenizer.open(shared_data("vocab-bert-base-uncased")), family="bert", max_length=384)
    examples = read_question_examples(str(shared_data("squad/squaddev_v1.1.json.gz"))).examples[::20]
    exact = set()
    for item in QuestionAnswering().preprocess(examples, rows):
        start, end = item.target
        if start == 0:
            continue
        example, characters = examples[item.example], item.extra.offsets
        answer = example.answers[0]
        first, last = characters[start - item.extra.first][0], characters[end - item.extra.first][1]
        found = example.context[first:last]
        # An answer inside a word, such as the 8 of 18, cannot be separated from it.
        inside = example.context[first : answer.start] + example.context[answer.start + len(answer.text) : last]
        assert found == answer.text or inside.isalnum()
        exact |= {item.example} if found == answer.text else set()
    assert len(examples) == 529
    assert len(exact) > 0.99 * len(examples)


@pytest.mark.parametrize("answer", ["film ", " film", "film\ufe0f", "\ufe0f film"])
def test_characters_that_the_tokenizer_drops_at_the_ends_of_an_answer_do_not_matter(
    rows_of: Makers, answer: str
) -> None:
    context = f"the {answer} day"
    (item,) = QuestionAnswering().preprocess([question_example(context, answer)], rows_of("bert"))
    start, end = item.target
    assert start == end == item.extra.first + 1


def test_targets_of_questions_without_an_answer(rows_of: Makers) -> None:
    examples = [
        question_example("x y"),
        question_example("x y", answerable=False),
        question_example("x y", "y"),
        question_example("x \ufe0f", "\ufe0f"),
    ]
    items = QuestionAnswering().preprocess(examples, rows_of("bert"))
    assert [item.target for item in items] == [None, (0, 0), (5, 5), (0, 0)]


def test_the_loss_by_hand(rows_of: Makers) -> None:
    items = QuestionAnswering().preprocess(
        [question_example("x y z", "x y"), question_example("x y", answerable=False)], rows_of("bert")
    )
    sizes = [len(item) for item in items]
    assert items[0].target == (4, 5)
    logits = torch.randn(sum(sizes), 2)
    expected = []
    for part, (start, end) in zip(torch.split(logits, sizes), ((4, 5), (0, 0)), strict=True):
        expected += [-part[:, 0].log_softmax(0)[start], -part[:, 1].log_softmax(0)[end]]
    assert QuestionAnswering().loss(logits, items).item() == pytest.approx(
        torch.stack(expected).mean().item(), abs=1e-6
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_all_spans(rows_of: Makers, seed: int) -> None:
    """Compared with an exhaustive search."""
    torch.manual_seed(seed)
    example, item = single(rows_of("bert"), " ".join("abcdefghij" * 5))
    logits = 3 * torch.randn(len(item), 2)
    one = predict(example, item, logits)
    first, count = item.extra.first, len(item.extra.offsets)
    assert count == 50
    spans = [(a, b) for a in range(count) for b in range(a, min(a + MAX_ANSWER_LENGTH, count))]
    scores = {(2 * a, 2 * b + 1): (logits[first + a, 0] + logits[first + b, 1]).item() for a, b in spans}
    best = sorted(scores, key=lambda span: -scores[span])[:5]
    assert [(choice["start"], choice["end"]) for choice in one["nbest"]] == best
    weights = [math.exp(scores[span] - scores[best[0]]) for span in best]
    assert [c["probability"] for c in one["nbest"]] == pytest.approx([weight / sum(weights) for weight in weights])
    assert {name: one[name] for name in ("answer", "start", "end", "probability")} == one["nbest"][0]


def test_an_answer_neither_ends_before_it_starts_nor_is_too_long(rows_of: Makers) -> None:
    example, item = single(rows_of("bert"), " ".join("x" * 50))
    first = item.extra.first
    back = torch.zeros(len(item), 2)
    back[first + 20, 0] = back[first + 10, 1] = 9.0
    assert [c for c in predict(example, item, back)["nbest"] if c["start"] == 40 and c["end"] == 21] == []
    for length, found in ((30, True), (31, False)):
        far = torch.zeros(len(item), 2)
        far[first + 5, 0] = far[first + 5 + length - 1, 1] = 9.0
        one = predict(example, item, far)
        assert ((one["start"], one["end"]) == (10, 10 + 2 * length - 1)) is found


def test_only_the_context_is_searched(rows_of: Makers) -> None:
    example, item = single(rows_of("bert"), "x y")
    logits = torch.zeros(len(item), 2)
    logits[: item.extra.first] = logits[-1] = 100.0
    assert {choice["answer"] for choice in predict(example, item, logits)["nbest"]} == {"x", "y", "x y"}


@pytest.mark.parametrize(
    ("threshold", "nothing", "answer"),
    [
        (0.0, 3.0, "x"),
        (0.0, 4.0, ""),
        (0.0, 5.0, ""),
        (-2.0, 5.0, "x"),
        (2.0, 3.0, ""),
        (2.0, 1.0, "x"),
        (None, 50.0, "x"),
    ],
)
def test_an_answer_must_exceed_no_answer_by_the_threshold(
    rows_of: Makers, threshold: float | None, nothing: float, answer: str
) -> None:
    example, item = single(rows_of("bert"), "x y")
    logits = torch.zeros(len(item), 2)
    logits[item.extra.first] = 2.0  # so the score of "x" is 4, of "x y" 2, of "y" 0
    logits[0, 0] = nothing
    one = predict(example, item, logits, threshold)
    assert one["answer"] == answer
    probabilities = [choice["probability"] for choice in one["nbest"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1)
    assert one["probability"] in probabilities
    scores = [4.0, 2.0, 0.0, *([] if threshold is None else [nothing])]
    assert len(probabilities) == len(scores)
    answer_text = nothing if answer == "" else 4.0
    assert one["probability"] == pytest.approx(math.exp(answer_text) / sum(map(math.exp, scores)))
    if not answer:
        assert (one["start"], one["end"]) == (0, 0)


def test_questions_with_equal_ids_are_scored_separately() -> None:
    examples = [question_example("x y", "y"), question_example("x y", "x"), question_example("x y", answerable=False)]
    scores = QuestionAnswering(0.0).compute_metrics(examples, [{"id": "q1", "answer": one} for one in ("y", "y", "")])
    assert scores["exact_match"] == pytest.approx(200 / 3)
    assert scores["no_answer_accuracy"] == 100
    assert scores["has_answer_f1"] == 50


def prediction(answer_text: str, margin: float | None) -> Prediction:
    """A prediction made with a threshold of 0."""
    none = {"answer": "", "start": 0, "end": 0, "probability": 0.4}
    some = {"answer": answer_text, "start": 0, "end": len(answer_text), "probability": 0.6}
    listed = [some, none] if answer_text else [none]
    return {"id": "q1", **(some if margin is not None and margin > 0 else none), "nbest": listed, "margin": margin}


def test_the_threshold_maximizes_f1() -> None:
    examples = [
        question_example("x y", "y"),
        question_example("x y", "x"),
        question_example("x y", answerable=False),
        question_example("x y", answerable=False),
    ]
    predictions = [prediction("y", -1.0), prediction("x", 3.0), prediction("x", -2.0), prediction("", None)]
    task = QuestionAnswering(0.0)
    assert task.has_calibration and task.compute_metrics(examples, predictions)["f1"] == 75
    best, changed = task.calibrate(examples, predictions)
    assert isinstance(best, QuestionAnswering) and best.threshold == -1.5
    assert [one["answer"] for one in changed] == ["y", "x", "", ""]
    assert best.compute_metrics(examples, changed)["f1"] == 100
    assert changed[0] == {"id": "q1", **changed[0]["nbest"][0], "nbest": predictions[0]["nbest"], "margin": -1.0}
    assert [list(one)[:6] for one in changed] == [["id", "answer", "start", "end", "probability", "nbest"]] * 4


def test_the_threshold_is_unchanged_if_every_question_has_an_answer() -> None:
    examples, predictions = [question_example("x y", "y")], [prediction("y", -1.0)]
    assert QuestionAnswering(0.0).calibrate(examples, predictions)[0].threshold == 0.0  # type: ignore[attr-defined]
    assert not QuestionAnswering(None).has_calibration


def test_the_margin_is_reported_if_there_may_be_no_answer(rows_of: Makers) -> None:
    example, item = single(rows_of("bert"), "x y")
    logits = torch.zeros(len(item), 2)
    logits[item.extra.first] = 2.0
    logits[0, 0] = 1.5
    assert predict(example, item, logits, 0.0)["margin"] == 2.5
    assert "margin" not in predict(example, item, logits, None)
    bare, empty = single(rows_of("bert"), "")
    assert predict(bare, empty, torch.zeros(len(empty), 2), 0.0)["margin"] is None
