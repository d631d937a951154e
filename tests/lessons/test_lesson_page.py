"""The lessons' pages and tables, told of results made up for the purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard.lessons.lesson_page import (
    config_text,
    decoding_rows,
    length_rows,
    probability_rows,
    reverse_page,
    reverse_rows,
    shaded,
    six_words_page,
)
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
from tests.render.page_data import blocks_of, payload_of

SETTING = ReverseConfig(steps=3, features=5, units=6, train_size=60, test_size=12, epochs=2, seed=7)


def made_up(task: ReverseTask) -> ReverseRun:
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
        accuracy_by_position=[100.0, 50.0, 12.5] + [0.0] * (steps - 3),
        read=read,
        written=read[::-1] if attends else read,
        matrix=matrix if attends else None,
        mean_matrix=matrix if attends else None,
    )


@pytest.fixture
def comparison() -> ReverseComparison:
    return collect_runs([made_up(task) for task in plan_tasks(SETTING, [4, 5])])


def test_the_decks_figures_open_the_table(comparison: ReverseComparison) -> None:
    headers, rows = reverse_rows(comparison)
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
    assert "token accuracy" in headers[0]


def test_accuracy_against_length(comparison: ReverseComparison) -> None:
    headers, rows = length_rows(comparison)
    assert headers == ("digits to reverse", "no attention", "dot, luong")
    assert rows == [("3", "37.000", "97.000"), ("4", "36.000", "97.000"), ("5", "35.000", "97.000")]


@pytest.mark.usefixtures("page_built")
def test_the_page_has_the_curve_and_a_matrix_of_every_attention(comparison: ReverseComparison) -> None:
    page = reverse_page(comparison)
    where, *looks, mean = blocks_of(page, "map")
    assert len(looks) == 6 and mean["title"].endswith("mean over the test set, by position")
    assert where["weights"][0] == [1.0, 0.5, 0.125] and where["rows"][0] == "no attention"
    assert all(look["weights"][0] == [0, 0, 1] and look["rows"] == ["3", "2", "1"] for look in looks)
    (curve,) = blocks_of(page, "chart")
    assert curve["at"] == [3, 4, 5]
    assert curve["lines"][1] == {"name": "dot, luong", "values": [97, 97, 97]}
    runs, lengths, answers = blocks_of(page, "table")
    assert runs["rows"][0][1] == "99.550" and lengths["rows"][0] == ["3", "37.000", "97.000"]
    assert answers["rows"][2:4] == [["no attention", "1 2 3", "wrong"], ["dot, luong", "3 2 1", "correct"]]
    told = " ".join(block["text"] for block in blocks_of(page, "text"))
    assert "Seed 7." in told and "785 of 800" in told


@pytest.mark.usefixtures("page_built")
def test_the_page_says_how_to_make_it_again(comparison: ReverseComparison) -> None:
    payload = payload_of(reverse_page(comparison))
    assert "--steps 3 --features 5 --units 6 --train-size 60 --test-size 12 --epochs 2" in payload["cli"]
    assert "--lengths 3,4,5 --seed 7" in payload["cli"]
    names: dict[str, object] = {}
    exec(payload["python"].splitlines()[0], names)
    exec(payload["python"].splitlines()[2], names)
    assert names["tasks"] == plan_tasks(SETTING, [4, 5])


@pytest.mark.usefixtures("page_built")
def test_one_length_is_no_curve(comparison: ReverseComparison) -> None:
    alone = replace(comparison, lengths=comparison.lengths[:1])
    assert not blocks_of(reverse_page(alone), "chart")


def test_a_wide_matrix_in_few_columns() -> None:
    lines = shaded([[0.0, 1.0], [0.5, 0.3]], ["  7", " 12"], ["12", "7"])
    assert lines == ["    12  7", "  7    ██", " 12 ▒▒ ░░"]
    with pytest.raises(ValueError, match="1 x 1"):
        shaded([[0.5, 0.5]], ["x"], ["y"])


def test_clipping_is_spoken_of_where_there_is_any() -> None:
    assert "gradients" not in config_text(SETTING)
    assert "gradients clipped to norm 0.5" in config_text(replace(SETTING, max_grad_norm=0.5))


EVEN, SURE = [1 / 6] * 6, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
PAIR = SixWordsPair(
    source="merci",
    target=["thanks", "<eos>"],
    before=[EVEN, EVEN],
    after=[SURE, SURE[::-1]],
    decoding_before=[],
    decoding=[SixWordsStep(["<eos>"], SURE, "thanks"), SixWordsStep(["<eos>", "thanks"], EVEN, "<eos>")],
)


def test_six_words_in_rows() -> None:
    assert probability_rows(PAIR, PAIR.before)[0] == ("#1", "thanks", *["0.167"] * 6)
    assert decoding_rows(PAIR.decoding)[1] == ("2", "<eos> thanks", *["0.167"] * 6, "<eos>")


@pytest.mark.usefixtures("page_built")
def test_the_page_of_six_words_shows_before_after_and_every_step() -> None:
    page = six_words_page(SixWordsLesson(losses=[18.0, 9.0, 0.25], pairs=[PAIR]), epochs=2, seed=3)
    before, after = blocks_of(page, "map")
    assert (before["weights"], after["weights"]) == ([EVEN, EVEN], [SURE, SURE[::-1]])
    losses, *_, steps = blocks_of(page, "table")
    assert losses["rows"] == [["0", "18.0000"], ["1", "9.0000"], ["2", "0.2500"]]
    assert steps["rows"][1][:2] == ["2", "<eos> thanks"]
    assert [block["heading"] for block in blocks_of(page, "section")][1] == "merci → thanks <eos>"
    assert "summed over" in blocks_of(page, "text")[-1]["text"]
    assert "--epochs 2 --seed 3" in payload_of(page)["cli"]
