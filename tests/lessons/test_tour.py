"""The tour's story, told of results made up for the purpose."""

from __future__ import annotations

import pytest
import torch

from regard.lessons.reverse import Accuracy, ReverseDataset, ReverseEvaluation, create_dataset
from regard.lessons.tour import TourRun, tour_page, tour_story
from tests.render.page_data import blocks_of


@pytest.fixture
def data() -> ReverseDataset:
    return create_dataset(30, 3, 4, 10, held_out=[(2, 8, 1, 6), (3, 0, 0, 7), (1, 2, 3, 4)])


def run(name: str, answers: torch.Tensor, *, attends: bool) -> TourRun:
    attention = torch.eye(4).flip(0).expand(3, 4, 4) if attends else None
    measures = ReverseEvaluation(Accuracy(99, 98), Accuracy(97, 96), answers, attention, 87.5 if attends else None)
    return TourRun(name, "dot" if attends else "none", "luong", 7, 1.0, measures)


@pytest.mark.usefixtures("page_built")
def test_the_first_mistake_is_shown_beside_the_first_sequence(data: ReverseDataset) -> None:
    right = data.y_test.argmax(-1)
    wrong = right.clone()
    wrong[1, 2] = 9
    story = tour_story(run("plain", wrong, attends=False), run("attending", right, attends=True), data, seed=4)
    first, second = story.examples
    assert (first.read, first.right) == ("2 8 1 6", "6 1 8 2")
    assert {verdict for _, _, verdict in first.answers} == {"correct"}
    assert (second.read, second.right) == ("3 0 0 7", "7 0 0 3")
    assert second.answers == [("plain", "7 0 9 3", "wrong"), ("attending", "7 0 0 3", "correct")]
    page = tour_page(story)
    assert blocks_of(page, "table")[-1]["rows"][1] == ["3 0 0 7", "7 0 0 3", "7 0 9 3 wrong", "7 0 0 3 correct"]
    told = " ".join(block["text"] for block in blocks_of(page, "text"))
    assert "87.5% of the test steps" in told and "Seed 4." in told
    one, mean = blocks_of(page, "map")
    assert one["weights"][0] == mean["weights"][0] == [0, 0, 0, 1]


def test_without_a_mistake_there_is_one_example(data: ReverseDataset) -> None:
    right = data.y_test.argmax(-1)
    story = tour_story(run("plain", right, attends=False), run("attending", right, attends=True), data, seed=0)
    assert [example.read for example in story.examples] == ["2 8 1 6"]
    assert story.rows[0] == ("the deck, without attention", "99.550", "98.125", "-", "-")
    assert story.rows[1] == ("plain", "99.000", "97.000", "96.000", "7")
    assert story.matrix[0] == [0, 0, 0, 1]
    assert (story.read, story.written) == (["2", "8", "1", "6"], ["6", "1", "8", "2"])


def test_the_second_model_must_attend(data: ReverseDataset) -> None:
    plain = run("plain", data.y_test.argmax(-1), attends=False)
    with pytest.raises(ValueError, match="must have attention, not score 'none'"):
        tour_story(plain, plain, data, seed=0)
