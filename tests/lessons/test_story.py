"""The lessons and the tour as stories: tables, heat maps and texts for known results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard.lessons.reverse import Accuracy
from regard.lessons.reverse_comparison import (
    ReverseComparison,
    ReverseConfig,
    ReverseRun,
    ReverseTask,
    collect_runs,
    plan_tasks,
)
from regard.lessons.six_words import SixWordsLesson, SixWordsPair, SixWordsStep
from regard.lessons.tour import Tour, tour_tasks
from tests.render.page_data import blocks_of, payload_of

CONFIG = ReverseConfig(steps=3, features=5, units=6, train_size=60, test_size=12, epochs=2, seed=7)


def example_run(task: ReverseTask) -> ReverseRun:
    attends = task.score != "none"
    steps = task.config.steps
    matrix = [[1.0 if across + down == steps - 1 else 0.0 for across in range(steps)] for down in range(steps)]
    read = list(range(1, steps + 1))
    return ReverseRun(
        task=task,
        epochs=2,
        seconds=1.5,
        train=Accuracy(99, 98),
        test=Accuracy(97 if attends else 40 - steps, 96),
        alignment_accuracy=87.5 if attends else None,
        inputs=[read] * 2,
        answers=[read[::-1] if attends else read, read[::-1]],
        matrix=matrix if attends else None,
        mean_matrix=matrix if attends else None,
    )


@pytest.fixture
def comparison() -> ReverseComparison:
    return collect_runs([example_run(task) for task in plan_tasks(CONFIG, [4, 5])])


def test_the_table_starts_with_the_scores_of_the_deck(comparison: ReverseComparison) -> None:
    table = comparison.table()
    rows = [tuple(row) for row in table.rows]
    assert rows[0] == ("the deck, no attention", "99.550", "98.125", "-", "-", "-")
    assert rows[1] == ("no attention", "99.000", "37.000", "96.000", "-", "2")
    assert rows[2] == ("dot, luong", "99.000", "97.000", "96.000", "87.500", "2")
    assert [row[0] for row in rows[3:]] == [
        "general, luong",
        "additive, luong",
        "dot, deck",
        "general, deck",
        "additive, deck",
    ]
    assert "token accuracy" in table.headers[0]


def test_accuracy_against_length(comparison: ReverseComparison) -> None:
    table = comparison.length_table()
    assert table.headers == ("digits to reverse", "no attention", "dot, luong")
    assert table.rows == [("3", "37.000", "97.000"), ("4", "36.000", "97.000"), ("5", "35.000", "97.000")]


@pytest.mark.usefixtures("page_built")
def test_the_page_has_the_chart_and_a_heat_map_of_every_attention(comparison: ReverseComparison) -> None:
    page = comparison.story().to_html()
    where, *maps, mean = blocks_of(page, "map")
    assert len(maps) == 6 and mean["title"].endswith("mean over the test set, by position")
    assert where["weights"][0] == [0.5, 1.0, 0.5] and where["rows"][0] == "no attention"
    assert all(one["weights"][0] == [0, 0, 1] and one["rows"] == ["3", "2", "1"] for one in maps)
    (chart,) = blocks_of(page, "chart")
    assert chart["at"] == [3, 4, 5]
    assert chart["lines"][1] == {"name": "dot, luong", "values": [97, 97, 97]}
    runs, lengths, answers = blocks_of(page, "table")
    assert runs["rows"][0][1] == "99.550" and lengths["rows"][0] == ["3", "37.000", "97.000"]
    assert answers["rows"][2:4] == [["no attention", "1 2 3", "wrong"], ["dot, luong", "3 2 1", "correct"]]
    text = " ".join(block["text"] for block in blocks_of(page, "text"))
    assert "Seed 7." in text and "785 of 800" in text


@pytest.mark.usefixtures("page_built")
def test_the_page_has_the_lines_that_reproduce_it(comparison: ReverseComparison) -> None:
    payload = payload_of(comparison.story().to_html())
    assert "--steps 3 --features 5 --units 6 --train-size 60 --test-size 12 " in payload["cli"]
    assert "--epochs 2 --seed 7 --lengths 3,4,5" in payload["cli"]
    names: dict[str, object] = {}
    exec(payload["python"].splitlines()[0], names)
    exec(payload["python"].splitlines()[2], names)
    assert names["tasks"] == plan_tasks(CONFIG, [4, 5])


@pytest.mark.usefixtures("page_built")
def test_one_length_has_no_chart(comparison: ReverseComparison) -> None:
    alone = replace(comparison, lengths=comparison.lengths[:1])
    assert not blocks_of(alone.story().to_html(), "chart")


def test_the_terminal_shows_the_best_attention_alone(comparison: ReverseComparison) -> None:
    text = comparison.story().to_text()
    assert text.count("columns: read, rows: written") == 1
    for words in ("99.550", "no attention", "Attention\n", "dot, luong; columns", "785 of"):
        assert words in text, words


def test_gradient_clipping_is_described_if_used() -> None:
    assert "gradients" not in CONFIG.description()
    assert "gradients clipped to norm 0.5" in replace(CONFIG, max_grad_norm=0.5).description()


EVEN, SURE = [1 / 6] * 6, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
PAIR = SixWordsPair(
    source="merci",
    target=["thanks", "<eos>"],
    before=[EVEN, EVEN],
    after=[SURE, SURE[::-1]],
    decoding_before=[],
    decoding=[SixWordsStep(["<eos>"], SURE, "thanks"), SixWordsStep(["<eos>", "thanks"], EVEN, "<eos>")],
)


@pytest.mark.usefixtures("page_built")
def test_the_page_of_six_words_shows_before_after_and_every_step() -> None:
    page = SixWordsLesson(losses=[18.0, 9.0, 0.25], pairs=[PAIR], seed=3).story().to_html()
    before, after = blocks_of(page, "map")
    assert (before["weights"], after["weights"]) == ([EVEN, EVEN], [SURE, SURE[::-1]])
    losses, untrained, _, steps = blocks_of(page, "table")
    assert losses["rows"] == [["0", "18.0000"], ["1", "9.0000"], ["2", "0.2500"]]
    assert untrained["rows"][0] == ["#1", "thanks", *["0.167"] * 6]
    assert steps["rows"][1] == ["2", "<eos> thanks", *["0.167"] * 6, "<eos>"]
    assert [block["heading"] for block in blocks_of(page, "section")][1] == "merci → thanks <eos>"
    assert "summed over" in blocks_of(page, "text")[-1]["text"]
    assert "--epochs 2 --seed 3" in payload_of(page)["cli"]


def tour(*answers: list[list[int]]) -> Tour:
    """A tour with these outputs of the two models."""
    inputs = [[2, 8, 1, 6], [3, 0, 0, 7], [1, 2, 3, 4]]
    tasks = tour_tasks(ReverseConfig(seed=4))
    plain, attending = (
        replace(example_run(task), inputs=inputs, answers=each) for task, each in zip(tasks, answers, strict=True)
    )
    return Tour(plain, attending)


RIGHT = [[6, 1, 8, 2], [7, 0, 0, 3], [4, 3, 2, 1]]


@pytest.mark.usefixtures("page_built")
def test_the_tour_shows_the_first_mistake_beside_the_first_sequence() -> None:
    page = tour([RIGHT[0], [7, 0, 9, 3], RIGHT[2]], RIGHT).story().to_html()
    scores, outputs = blocks_of(page, "table")
    assert scores["rows"][0] == ["the deck, without attention", "99.550", "98.125", "-", "-"]
    assert scores["rows"][1] == ["without attention", "99.000", "36.000", "96.000", "2"]
    assert outputs["rows"] == [
        ["2 8 1 6", "6 1 8 2", "6 1 8 2 correct", "6 1 8 2 correct"],
        ["3 0 0 7", "7 0 0 3", "7 0 9 3 wrong", "7 0 0 3 correct"],
    ]
    text = " ".join(block["text"] for block in blocks_of(page, "text"))
    assert "87.5% of the test steps" in text and "Seed 4." in text
    one, mean = blocks_of(page, "map")
    assert one["weights"][0] == mean["weights"][0] == [0, 0, 0, 1]
    assert (one["rows"], one["columns"]) == (["6", "1", "8", "2"], ["2", "8", "1", "6"])


@pytest.mark.usefixtures("page_built")
def test_without_a_mistake_the_tour_shows_one_sequence() -> None:
    _, outputs = blocks_of(tour(RIGHT, RIGHT).story().to_html(), "table")
    assert [row[0] for row in outputs["rows"]] == ["2 8 1 6"]
