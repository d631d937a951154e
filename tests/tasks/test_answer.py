"""Answers: from characters to tokens and back, in windows, and which of all spans is said."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from regard.data.examples import Answer, Question
from regard.tasks.answer import LONGEST_ANSWER, Answering
from regard.tasks.base import Item, Prediction
from regard.tasks.folder import Solved
from regard.tasks.rows import Rows
from regard.tasks.solve import predict, score
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.planted import Planted

CPU = torch.device("cpu")


def asked(context: str, *answers: str, question: str = "what film", possible: bool = True) -> Question:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return Question("q1", question, context, found, possible)


def planted(
    rows: Rows, encoder_of: Encoders, *, start: str, end: str, length: int = 64, threshold: float | None = None
) -> Solved:
    """An answer begins with the token `start` and ends with the token `end`."""
    table = torch.zeros(rows.tokenizer.size, 2)
    table[rows.tokenizer.id(start), 0] = 5.0
    table[rows.tokenizer.id(end), 1] = 5.0
    return Solved(Answering(threshold), Planted(encoder_of(rows.family), table), rows.tokenizer, length)


def said_of(solved: Solved, example: Question) -> Prediction:
    (one,) = predict(solved, [example], device=CPU)
    assert one["id"] == example.id
    for choice in one["nbest"]:
        assert choice["answer"] == example.context[choice["start"] : choice["end"]]
    assert sum(choice["probability"] for choice in one["nbest"]) == pytest.approx(1)
    return one


def single(rows: Rows, context: str) -> tuple[Question, Item]:
    example = Question("q1", "who", context)
    (item,) = Answering().items([example], rows)
    return example, item


def judged(example: Question, item: Item, numbers: Tensor, threshold: float | None = None) -> Prediction:
    (one,) = Answering(threshold).predictions([example], [item], [numbers])
    return one


def test_whether_there_may_be_no_answer_is_learned() -> None:
    assert Answering.learn([asked("x y", "y")]).threshold is None
    task = Answering.learn([asked("x y", "y"), asked("x y", possible=False)])
    assert task.threshold == 0.0
    assert [Answering.restore(Answering(value).document()).threshold for value in (None, 0.0, -1.5)] == [None, 0.0, -1.5]
    assert task.outputs == 2


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("the film good day", "film good"),
        ("film", "film"),
        ("\u00c9l\u00e9phant  na\u00efve \U0001f600\U0001f600 caf\u00e9, d\u00e0y!", "na\u00efve \U0001f600\U0001f600 caf\u00e9"),
        ("x \u4e2d\u6587 zebra", "\u4e2d\u6587"),
        ("e\u0301 (Film) day", "Film"),
    ],
)
def test_an_answer_to_its_tokens_and_back(rows_of: Makers, family: str, context: str, answer: str) -> None:
    rows = rows_of(family)
    example = asked(context, answer)
    (item,) = Answering().items([example], rows)
    start, end = item.target
    numbers = torch.zeros(len(item), 2)
    numbers[start, 0] = numbers[end, 1] = 5.0
    one = judged(example, item, numbers)
    assert (one["answer"], one["start"]) == (answer, context.index(answer))
    inside = item.rows[0].ids[start : end + 1]
    assert rows.tokenizer.decode(inside).strip() == rows.tokenizer.decode(rows.tokens([answer])[0].ids).strip()


@pytest.mark.parametrize("answer", ["film ", " film", "film\ufe0f", "\ufe0f film"])
def test_what_the_tokenizer_drops_at_an_answers_ends_does_not_matter(rows_of: Makers, answer: str) -> None:
    context = f"the {answer} day"
    (item,) = Answering().items([asked(context, answer)], rows_of("bert"))
    start, end = item.target
    assert start == end == item.note.first + 1


def test_targets_of_questions_without_an_answer(rows_of: Makers) -> None:
    examples = [asked("x y"), asked("x y", possible=False), asked("x y", "y"), asked("x \ufe0f", "\ufe0f")]
    items = Answering().items(examples, rows_of("bert"))
    assert [item.target for item in items] == [None, (0, 0), (5, 5), (0, 0)]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_windows_know_whether_they_hold_the_answer(rows_of: Makers, family: str) -> None:
    rows = rows_of(family, 24)
    words = ["x"] * 60
    words[37:40] = ["y", "z", "y"]
    example = asked(" ".join(words), "y z y")
    ids = rows.tokens([" y z y", "y z y"])[0 if family != "bert" else 1].ids
    (context,) = rows.tokens([example.context])
    items = Answering().items([example], rows)
    assert len(items) > 5
    whole, parts = 0, 0
    for item in items:
        row, window = item.rows[0].ids, item.note
        assert len(row) <= 24
        assert len(window.offsets) == len(window.owned)
        held = [place for place in range(len(row)) if row[place : place + len(ids)] == ids]
        start, end = item.target
        if held:
            assert row[start : end + 1][-len(ids) :] == ids[-(end - start + 1) :]
            whole += 1
        else:
            assert (start, end) == (0, 0)
            parts += ids[-1] in row
    assert whole >= 1
    assert parts >= 1  # a window's edge cuts the answer
    owned = [offsets for item in items for offsets, mine in zip(item.note.offsets, item.note.owned, strict=True) if mine]
    assert owned == context.offsets


def test_the_loss_by_hand(rows_of: Makers) -> None:
    items = Answering().items([asked("x y", "x"), asked("x y z", possible=False)], rows_of("bert"))
    sizes = [len(item) for item in items]
    assert items[0].target == (4, 4)
    numbers = torch.randn(sum(sizes), 2)
    expected = []
    for part, (start, end) in zip(numbers.split(sizes), ((4, 4), (0, 0)), strict=True):
        expected += [-part[:, 0].log_softmax(0)[start], -part[:, 1].log_softmax(0)[end]]
    assert Answering().loss(numbers, items).item() == pytest.approx(torch.stack(expected).mean().item(), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_all_spans(rows_of: Makers, seed: int) -> None:
    """Against a search through all of them."""
    torch.manual_seed(seed)
    example, item = single(rows_of("bert"), " ".join("abcdefghij" * 5))
    numbers = 3 * torch.randn(len(item), 2)
    one = judged(example, item, numbers)
    first, count = item.note.first, len(item.note.offsets)
    assert count == 50
    spans = [(a, b) for a in range(count) for b in range(a, min(a + LONGEST_ANSWER, count))]
    scores = {(2 * a, 2 * b + 1): (numbers[first + a, 0] + numbers[first + b, 1]).item() for a, b in spans}
    best = sorted(scores, key=lambda span: -scores[span])[:5]
    assert [(choice["start"], choice["end"]) for choice in one["nbest"]] == best
    weights = [math.exp(scores[span] - scores[best[0]]) for span in best]
    assert [c["probability"] for c in one["nbest"]] == pytest.approx([weight / sum(weights) for weight in weights])
    assert {name: one[name] for name in ("answer", "start", "end", "probability")} == one["nbest"][0]


def test_an_answer_neither_ends_before_it_starts_nor_is_too_long(rows_of: Makers) -> None:
    example, item = single(rows_of("bert"), " ".join("x" * 50))
    first = item.note.first
    back = torch.zeros(len(item), 2)
    back[first + 20, 0] = back[first + 10, 1] = 9.0
    assert [c for c in judged(example, item, back)["nbest"] if c["start"] == 40 and c["end"] == 21] == []
    for length, found in ((30, True), (31, False)):
        far = torch.zeros(len(item), 2)
        far[first + 5, 0] = far[first + 5 + length - 1, 1] = 9.0
        one = judged(example, item, far)
        assert ((one["start"], one["end"]) == (10, 10 + 2 * length - 1)) is found


def test_only_the_context_is_searched(rows_of: Makers) -> None:
    example, item = single(rows_of("bert"), "x y")
    numbers = torch.zeros(len(item), 2)
    numbers[: item.note.first] = numbers[-1] = 100.0
    assert {choice["answer"] for choice in judged(example, item, numbers)["nbest"]} == {"x", "y", "x y"}


def test_each_start_is_judged_where_it_has_most_context(rows_of: Makers) -> None:
    rows = rows_of("bert", 24)
    example = Question("q1", "who", " ".join("x" * 40))
    items = Answering().items([example], rows)
    numbers = [torch.zeros(len(item), 2) for item in items]
    for item, part in zip(items, numbers, strict=True):
        for place, mine in enumerate(item.note.owned):
            part[item.note.first + place] = 0.0 if mine else 50.0  # what a window does not judge must not count
    for part in numbers:
        part[:, 1] = 0.0
    (one,) = Answering().predictions([example], items, numbers)
    assert max(choice["probability"] for choice in one["nbest"]) == pytest.approx(0.2)


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
def test_no_answer_needs_to_be_beaten_by_the_threshold(
    rows_of: Makers, threshold: float | None, nothing: float, answer: str
) -> None:
    example, item = single(rows_of("bert"), "x y")
    numbers = torch.zeros(len(item), 2)
    numbers[item.note.first] = 2.0  # so "x" has 4, "x y" 2, "y" 0
    numbers[0, 0] = nothing
    one = judged(example, item, numbers, threshold)
    assert one["answer"] == answer
    shares = [choice["probability"] for choice in one["nbest"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert one["probability"] in shares
    scores = [4.0, 2.0, 0.0, *([] if threshold is None else [nothing])]
    assert len(shares) == len(scores)
    said = nothing if answer == "" else 4.0
    assert one["probability"] == pytest.approx(math.exp(said) / sum(map(math.exp, scores)))
    if not answer:
        assert (one["start"], one["end"]) == (0, 0)


def test_no_answer_is_what_the_window_says_that_believes_in_it_least(rows_of: Makers) -> None:
    example = Question("q1", "who", " ".join("x" * 40))
    items = Answering().items([example], rows_of("bert", 24))
    numbers = [torch.zeros(len(item), 2) for item in items]
    for part in numbers:
        part[0] = 10.0
    assert Answering(0.0).predictions([example], items, numbers)[0]["answer"] == ""
    numbers[1][0] = -1.0
    assert Answering(0.0).predictions([example], items, numbers)[0]["answer"] == "x"


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("length", [16, 24, 64])
def test_a_planted_answer_is_found_wherever_it_lies(
    rows_of: Makers, encoder_of: Encoders, family: str, length: int
) -> None:
    spelled = ("film", "day") if family == "bert" else ("Ġfilm", "Ġday")
    solved = planted(rows_of(family), encoder_of, start=spelled[0], end=spelled[1], length=length)
    for place in range(1, 40):
        words = ["x"] * 40
        words[place:place] = ["film", "day"]
        one = said_of(solved, Question("q1", "who", " ".join(words)))
        assert (one["answer"], one["start"]) == ("film day", 2 * place)


@pytest.mark.parametrize("place", [0, 1234, 2500, 4997])
def test_a_context_of_5000_words(rows_of: Makers, encoder_of: Encoders, place: int) -> None:
    solved = planted(rows_of("bert"), encoder_of, start="film", end="day")
    chance = random.Random(0)
    words = [chance.choice(["x", "zebra", "the", "good"]) for _ in range(4997)]
    words[place:place] = ["film", "yy", "day"]
    example = asked(" ".join(words), "film yy day")
    one = said_of(solved, example)
    assert (one["answer"], one["start"]) == ("film yy day", example.answers[0].start)
    assert score(solved, [example], device=CPU) == {"exact_match": 100.0, "f1": 100.0}


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("threshold", [None, 0.0])
@pytest.mark.parametrize("context", ["", "   ", "\n\t"])
def test_a_context_of_nothing(
    rows_of: Makers, encoder_of: Encoders, family: str, threshold: float | None, context: str
) -> None:
    solved = planted(rows_of(family), encoder_of, start="a", end="a", threshold=threshold)
    one = said_of(solved, Question("q1", "who", context))
    assert (one["answer"], one["start"], one["end"], one["probability"]) == ("", 0, 0, 1.0)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("length", [8, 13, 64])
def test_a_long_question_leaves_room_for_the_context(rows_of: Makers, family: str, length: int) -> None:
    rows = rows_of(family, length)
    example = Question("q1", "who " * 200, "x y z " * 5)
    items = Answering().items([example], rows)
    assert all(len(item) <= length for item in items)
    assert max(len(item) for item in items) == length
    assert sum(sum(item.note.owned) for item in items) == len(rows.tokens([example.context])[0])


def test_scores_are_by_question_though_ids_are_alike() -> None:
    examples = [asked("x y", "y"), asked("x y", "x"), asked("x y", possible=False)]
    scores = Answering(0.0).scores(examples, [{"id": "q1", "answer": one} for one in ("y", "y", "")])
    assert scores["exact_match"] == pytest.approx(200 / 3)
    assert scores["no_answer_accuracy"] == 100
    assert scores["has_answer_f1"] == 50
