"""Multiple choice: one row for each ending, any number of endings in a batch, and required labels."""

from __future__ import annotations

import math

import pytest
import torch

from regard.data.examples import ChoiceExample
from regard.errors import InputError
from regard.tasks.multiple_choice import MultipleChoice
from tests.tasks.conftest import Makers

EXAMPLES = [
    ChoiceExample("the film", ("is good", "is bad"), 1),
    ChoiceExample("a day", ("goes", "comes", "is long", "had"), 0),
    ChoiceExample("water", ("is", "are", "be"), None),
]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_each_ending_is_a_row_with_its_text(rows_of: Makers, family: str) -> None:
    rows = rows_of(family)
    items = MultipleChoice().preprocess(EXAMPLES, rows)
    assert [item.target for item in items] == [1, 0, None]
    for item, example in zip(items, EXAMPLES, strict=True):
        expected = rows.sequences([(example.text, ending) for ending in example.endings])
        assert [row.ids for row in item.sequences] == [row.ids for row in expected]
        assert [row.positions for row in item.sequences] == [row.positions for row in expected]


def test_the_loss_of_different_numbers_of_endings(rows_of: Makers) -> None:
    items = MultipleChoice().preprocess(EXAMPLES[:2], rows_of("bert"))
    found = torch.tensor([[1.0], [2.0], [0.0], [-1.0], [3.0], [0.5]])
    first = math.log(math.exp(1) + math.exp(2)) - 2
    second = math.log(sum(map(math.exp, (0, -1, 3, 0.5)))) - 0
    assert MultipleChoice().loss(found, items).item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_predictions_and_scores() -> None:
    found = [torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [-1.0], [3.0], [0.5]]), torch.zeros(3, 1)]
    predictions = MultipleChoice().postprocess(EXAMPLES, [], found)
    assert [one["choice"] for one in predictions] == [1, 2, 0]
    assert [one["ending"] for one in predictions] == ["is bad", "is long", "is"]
    assert [len(one["probabilities"]) for one in predictions] == [2, 4, 3]
    assert all(sum(one["probabilities"]) == pytest.approx(1, abs=1e-12) for one in predictions)
    assert predictions[0]["probabilities"][1] == pytest.approx(1 / (1 + math.exp(-1)))
    assert MultipleChoice().compute_metrics(EXAMPLES[:2], predictions[:2]) == {"accuracy": 50.0}


@pytest.mark.parametrize("label", [-1, 2, 7])
def test_a_label_beyond_the_endings(rows_of: Makers, label: int) -> None:
    with pytest.raises(InputError, match=f"the correct ending is number {label}, and there are 2"):
        MultipleChoice().preprocess([ChoiceExample("a", ("b", "c"), label)], rows_of("bert"))
    with pytest.raises(InputError, match=f"the correct ending is number {label}"):
        MultipleChoice().check(ChoiceExample("a", ("b", "c"), label))


@pytest.mark.parametrize("endings", [(), ("b",)])
def test_fewer_than_two_endings(rows_of: Makers, endings: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=f"at least two endings to choose from, got {len(endings)}"):
        MultipleChoice().preprocess([ChoiceExample("a", endings, None)], rows_of("bert"))


def test_the_task_has_no_settings() -> None:
    assert isinstance(MultipleChoice.from_dict(MultipleChoice.from_examples(EXAMPLES).to_dict()), MultipleChoice)
