"""One class, several classes or a number a text: what is learned, targets, losses by hand, predictions, scores."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from regard.data.examples import Text
from regard.errors import InputError
from regard.tasks.model import numbers
from regard.tasks.texts import Classify, Pair, Regress
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.planted import Planted

CPU = torch.device("cpu")


def labelled(*labels: str | tuple[str, ...] | float | None) -> list[Text]:
    return [Text("some film", None, label) for label in labels]


def test_the_classes_are_those_of_the_training_data() -> None:
    task = Classify.learn(labelled("good", "bad", "good", None, "dull"))
    assert task.labels == ("bad", "dull", "good")
    assert (task.outputs, task.several, task.name) == (3, False, "classify")
    assert isinstance(Pair.learn(labelled("a", "b")), Pair)
    again = Pair.restore(Pair.learn(labelled("a", "b")).document())
    assert (type(again), again.labels, again.several) == (Pair, ("a", "b"), False)


@pytest.mark.parametrize(
    ("labels", "found"),
    [(("good", "good"), "only 'good'"), ((), "none"), ((None, "bad"), "only 'bad'"), (((), ()), "none")],
)
def test_one_class_is_no_task(labels: tuple[str | tuple[str, ...] | None, ...], found: str) -> None:
    with pytest.raises(InputError, match=f"at least two classes to tell apart, and the training data has {found}"):
        Classify.learn(labelled(*labels))


def test_a_label_that_training_has_not_seen(rows_of: Makers) -> None:
    task = Classify(["bad", "good"])
    with pytest.raises(
        InputError, match="the label 'fine' does not occur in the training data, which has 'bad', 'good'"
    ):
        task.items(labelled("good", "fine"), rows_of("bert"))
    for example in labelled("good", None):
        task.check(example)
    with pytest.raises(InputError, match="the label 'fine' does not occur"):
        task.check(Text("x", None, "fine"))
    with pytest.raises(InputError, match="got 'fine'"):
        Regress(0.0, 1.0).check(Text("x", None, "fine"))
    Regress(0.0, 1.0).check(Text("x"))
    several = Classify(["bad", "good"], several=True)
    with pytest.raises(InputError, match="the label 'fine'"):
        several.items(labelled(("good", "fine")), rows_of("bert"))
    many = Classify([f"label {number}" for number in range(30)])
    with pytest.raises(InputError, match="'label 9' and 20 more"):
        many.items(labelled("other"), rows_of("bert"))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_items_are_rows_with_targets(rows_of: Makers, family: str) -> None:
    rows = rows_of(family)
    examples = [Text("good film", None, "x"), Text("bad", "film", "y"), Text("dull")]
    items = Classify(["x", "y"]).items(examples, rows)
    assert [item.target for item in items] == [0, 1, None]
    assert [item.owner for item in items] == [0, 1, 2]
    expected = rows.whole([("good film", None), ("bad", "film"), ("dull", None)])
    assert [item.rows[0].ids for item in items] == [row.ids for row in expected]
    assert [len(item) for item in items] == [len(row) for row in expected]


def test_the_loss_of_one_class_by_hand(rows_of: Makers) -> None:
    task = Classify(["x", "y", "z"])
    items = task.items(labelled("z", "x"), rows_of("bert"))
    found = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    first = -0.5 + math.log(math.exp(1) + math.exp(-2) + math.exp(0.5))
    second = -0.0 + math.log(math.exp(0) + math.exp(3) + math.exp(1))
    assert task.loss(found, items).item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_the_loss_of_several_classes_by_hand(rows_of: Makers) -> None:
    task = Classify.learn(labelled(("x", "y"), ("x",), (), "z"))
    assert (task.labels, task.several) == (("x", "y", "z"), True)
    items = task.items(labelled(("z", "x"), ()), rows_of("bert"))
    assert [item.target for item in items] == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    found = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])
    expected = -(signs * found).sigmoid().log().mean().item()
    assert task.loss(found, items).item() == pytest.approx(expected, abs=1e-6)


def test_one_class_predicted_and_scored(rows_of: Makers) -> None:
    task = Classify(["bad", "good"])
    examples = [Text("a", None, "good"), Text("b", "c", "bad"), Text("d", None, "good"), Text("e", None, "bad")]
    items = task.items(examples, rows_of("bert"))
    found = [torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, -5.0]]), torch.zeros(1, 2)]
    said = task.predictions(examples, items, found)
    assert [one["label"] for one in said] == ["good", "bad", "bad", "bad"]
    assert all(sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-12) for one in said)
    assert said[0] == {
        "text": "a",
        "label": "good",
        "probabilities": {"bad": pytest.approx(1 / (1 + math.exp(2))), "good": pytest.approx(1 / (1 + math.exp(-2)))},
    }
    assert (said[1]["text_a"], said[1]["text_b"]) == ("b", "c")
    scores = task.scores(examples, said)
    truth, guess = ["good", "bad", "good", "bad"], ["good", "bad", "bad", "bad"]
    assert scores["accuracy"] == 75
    assert scores["macro_f1"] == pytest.approx(100 * f1_score(truth, guess, average="macro"))
    assert scores["mcc"] == pytest.approx(100 * matthews_corrcoef(truth, guess))


def test_a_label_never_seen_is_only_wrong_where_it_is_scored(rows_of: Makers) -> None:
    task = Classify(["bad", "good"])
    examples = labelled("good", "odd")
    said = task.predictions(examples, [], [torch.tensor([[0.0, 1.0]])] * 2)
    assert task.scores(examples, said)["accuracy"] == 50


def test_several_classes_predicted_and_scored() -> None:
    task = Classify(["x", "y", "z"], several=True)
    examples = labelled(("x", "z"), (), ("y",))
    found = [torch.tensor([[1.0, -1.0, 0.0]]), torch.full((1, 3), -3.0), torch.tensor([[-1.0, -1.0, 2.0]])]
    said = task.predictions(examples, [], found)
    assert [one["label"] for one in said] == [["x", "z"], [], ["z"]]
    assert said[0]["probabilities"]["x"] == pytest.approx(1 / (1 + math.exp(-1)))
    scores = task.scores(examples, said)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    truth, guess = [[1, 0, 1], [0, 0, 0], [0, 1, 0]], [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    assert scores["micro_f1"] == pytest.approx(100 * f1_score(truth, guess, average="micro"))
    again = Classify.restore(task.document())
    assert (again.labels, again.several) == (task.labels, True)


def test_what_a_regression_learns() -> None:
    task = Regress.learn(labelled(1.0, 2.0, 6.0))
    assert (task.mean, task.outputs) == (3.0, 1)
    assert task.deviation == pytest.approx(math.sqrt(14 / 3))
    again = Regress.restore(task.document())
    assert (again.mean, again.deviation) == (task.mean, task.deviation)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((2.0, 2.0), "expected numbers that differ, and the training data has one number only"),
        ((), "expected numbers that differ"),
        ((2.0, "high"), "expected a finite number as label, got 'high'"),
        ((2.0, None), "got None"),
        ((2.0, math.nan), "got nan"),
    ],
)
def test_what_no_regression_learns_from(labels: tuple[str | float | None, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Regress.learn(labelled(*labels))


def test_the_loss_of_a_regression_is_counted_in_deviations(rows_of: Makers) -> None:
    task = Regress(0.0, 2.0)
    items = task.items(labelled(1.0, 5.0), rows_of("bert"))
    assert [len(item.rows) for item in items] == [1, 1]
    assert task.loss(torch.tensor([[2.0], [2.0]]), items).item() == pytest.approx((1 + 9) / 2 / 4)


def test_a_gpt_reads_a_pair_in_both_orders(rows_of: Makers, encoder_of: Encoders) -> None:
    rows = rows_of("gpt2")
    examples = [Text("x", "y", 1.0), Text("y", None, 2.0), Text("z", "xx", 5.0)]
    task = Regress(0.0, 2.0)
    items = task.items(examples, rows)
    assert [len(item.rows) for item in items] == [2, 1, 2]
    read: list[list[tuple[str, str | None]]] = [[("x", "y"), ("y", "x")], [("y", None)], [("z", "xx"), ("xx", "z")]]
    for item, pairs in zip(items, read, strict=True):
        assert [row.ids for row in item.rows] == [row.ids for row in rows.whole(pairs)]
    raw = torch.tensor([[0.0], [4.0], [2.0], [1.0], [2.0]])
    assert task.loss(raw, items).item() == pytest.approx((1 + 0 + 3.5**2) / 3 / 4)
    said = task.predictions(examples, items, torch.split(raw, [2, 1, 2]))
    assert [one["value"] for one in said] == [2.0, 2.0, 1.5]
    assert said[0] == {"text_a": "x", "text_b": "y", "value": 2.0}
    assert said[1] == {"text": "y", "value": 2.0}
    assert task.scores(examples[::2], [said[0], {"value": 3.0}])["spearman"] == pytest.approx(100)
    model = Planted(encoder_of("gpt2"), torch.arange(float(rows.tokenizer.size))[:, None])
    found = dict(numbers(model, items, CPU))
    assert found[0].tolist() == [[0.0], [0.0]]  # the last token of each order is the one that ends


def test_an_encoder_reads_a_pair_once(rows_of: Makers) -> None:
    (item,) = Regress(0.0, 1.0).items([Text("x", "y", 1.0)], rows_of("bert"))
    assert len(item.rows) == 1
