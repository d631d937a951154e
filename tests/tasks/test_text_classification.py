"""Single-label, multi-label and regression tasks: labels, targets, losses by hand, predictions, scores."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.tasks.encoder_with_head import compute_logits
from regard.tasks.regression import Regression
from regard.tasks.text_classification import PairClassification, TextClassification
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.table_model import TableModel

CPU = torch.device("cpu")


def labeled(*labels: str | tuple[str, ...] | float | None) -> list[TextExample]:
    return [TextExample("some film", None, label) for label in labels]


def test_the_classes_are_those_of_the_training_data() -> None:
    task = TextClassification.from_examples(labeled("good", "bad", "good", None, "dull"))
    assert task.labels == ("bad", "dull", "good")
    assert (task.num_outputs, task.multi_label, task.name) == (3, False, "classify")
    assert isinstance(PairClassification.from_examples(labeled("a", "b")), PairClassification)
    again = PairClassification.from_dict(PairClassification.from_examples(labeled("a", "b")).to_dict())
    assert (type(again), again.labels, again.multi_label) == (PairClassification, ("a", "b"), False)


@pytest.mark.parametrize(
    ("labels", "found"),
    [(("good", "good"), "only 'good'"), ((), "none"), ((None, "bad"), "only 'bad'"), (((), ()), "none")],
)
def test_one_class_is_refused(labels: tuple[str | tuple[str, ...] | None, ...], found: str) -> None:
    with pytest.raises(InputError, match=f"at least two classes, and the training data has {found}"):
        TextClassification.from_examples(labeled(*labels))


def test_a_label_missing_from_the_training_data(rows_of: Makers) -> None:
    task = TextClassification(["bad", "good"])
    with pytest.raises(InputError, match=r"label 'fine'.*has 'bad', 'good'"):
        task.preprocess(labeled("good", "fine"), rows_of("bert"))
    for example in labeled("good", None):
        task.check(example)
    with pytest.raises(InputError, match="the label 'fine' does not occur"):
        task.check(TextExample("x", None, "fine"))
    with pytest.raises(InputError, match="got 'fine'"):
        Regression(0.0, 1.0).check(TextExample("x", None, "fine"))
    Regression(0.0, 1.0).check(TextExample("x"))
    several = TextClassification(["bad", "good"], multi_label=True)
    with pytest.raises(InputError, match="the label 'fine'"):
        several.preprocess(labeled(("good", "fine")), rows_of("bert"))
    many = TextClassification([f"label {number}" for number in range(30)])
    with pytest.raises(InputError, match="'label 9' and 20 more"):
        many.preprocess(labeled("other"), rows_of("bert"))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_items_are_rows_with_targets(rows_of: Makers, family: str) -> None:
    rows = rows_of(family)
    examples = [TextExample("good film", None, "x"), TextExample("bad", "film", "y"), TextExample("dull")]
    items = TextClassification(["x", "y"]).preprocess(examples, rows)
    assert [item.target for item in items] == [0, 1, None]
    assert [item.example for item in items] == [0, 1, 2]
    expected = rows.sequences([("good film", None), ("bad", "film"), ("dull", None)])
    assert [item.sequences[0].ids for item in items] == [row.ids for row in expected]
    assert [len(item) for item in items] == [len(row) for row in expected]


def test_the_loss_of_one_class_by_hand(rows_of: Makers) -> None:
    task = TextClassification(["x", "y", "z"])
    items = task.preprocess(labeled("z", "x"), rows_of("bert"))
    found = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    first = -0.5 + math.log(math.exp(1) + math.exp(-2) + math.exp(0.5))
    second = -0.0 + math.log(math.exp(0) + math.exp(3) + math.exp(1))
    assert task.loss(found, items).item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_the_loss_of_several_classes_by_hand(rows_of: Makers) -> None:
    task = TextClassification.from_examples(labeled(("x", "y"), ("x",), (), "z"))
    assert (task.labels, task.multi_label) == (("x", "y", "z"), True)
    items = task.preprocess(labeled(("z", "x"), ()), rows_of("bert"))
    assert [item.target for item in items] == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    found = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])
    expected = -(signs * found).sigmoid().log().mean().item()
    assert task.loss(found, items).item() == pytest.approx(expected, abs=1e-6)


def test_one_class_predicted_and_scored(rows_of: Makers) -> None:
    task = TextClassification(["bad", "good"])
    examples = [
        TextExample("a", None, "good"),
        TextExample("b", "c", "bad"),
        TextExample("d", None, "good"),
        TextExample("e", None, "bad"),
    ]
    items = task.preprocess(examples, rows_of("bert"))
    found = [torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, -5.0]]), torch.zeros(1, 2)]
    predictions = task.postprocess(examples, items, found)
    assert [one["label"] for one in predictions] == ["good", "bad", "bad", "bad"]
    assert all(sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-12) for one in predictions)
    assert predictions[0] == {
        "text": "a",
        "label": "good",
        "probabilities": {"bad": pytest.approx(1 / (1 + math.exp(2))), "good": pytest.approx(1 / (1 + math.exp(-2)))},
    }
    assert (predictions[1]["text_a"], predictions[1]["text_b"]) == ("b", "c")
    scores = task.compute_metrics(examples, predictions)
    truth, guess = ["good", "bad", "good", "bad"], ["good", "bad", "bad", "bad"]
    assert scores["accuracy"] == 75
    assert scores["macro_f1"] == pytest.approx(100 * f1_score(truth, guess, average="macro"))
    assert scores["mcc"] == pytest.approx(100 * matthews_corrcoef(truth, guess))


def test_an_unknown_label_counts_as_an_error_in_scoring(rows_of: Makers) -> None:
    task = TextClassification(["bad", "good"])
    examples = labeled("good", "odd")
    predictions = task.postprocess(examples, [], [torch.tensor([[0.0, 1.0]])] * 2)
    assert task.compute_metrics(examples, predictions)["accuracy"] == 50


def test_several_classes_predicted_and_scored() -> None:
    task = TextClassification(["x", "y", "z"], multi_label=True)
    examples = labeled(("x", "z"), (), ("y",))
    found = [torch.tensor([[1.0, -1.0, 0.0]]), torch.full((1, 3), -3.0), torch.tensor([[-1.0, -1.0, 2.0]])]
    predictions = task.postprocess(examples, [], found)
    assert [one["label"] for one in predictions] == [["x", "z"], [], ["z"]]
    assert predictions[0]["probabilities"]["x"] == pytest.approx(1 / (1 + math.exp(-1)))
    scores = task.compute_metrics(examples, predictions)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    truth, guess = [[1, 0, 1], [0, 0, 0], [0, 1, 0]], [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    assert scores["micro_f1"] == pytest.approx(100 * f1_score(truth, guess, average="micro"))
    again = TextClassification.from_dict(task.to_dict())
    assert (again.labels, again.multi_label) == (task.labels, True)


def test_regression_learns_mean_and_deviation() -> None:
    task = Regression.from_examples(labeled(1.0, 2.0, 6.0))
    assert (task.mean, task.num_outputs) == (3.0, 1)
    assert task.deviation == pytest.approx(math.sqrt(14 / 3))
    again = Regression.from_dict(task.to_dict())
    assert (again.mean, again.deviation) == (task.mean, task.deviation)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((2.0, 2.0), "all labels of the training data are equal"),
        ((), "expected different numbers"),
        ((2.0, "high"), "expected a finite number as label, got 'high'"),
        ((2.0, None), "got None"),
        ((2.0, math.nan), "got nan"),
    ],
)
def test_invalid_regression_labels(labels: tuple[str | float | None, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Regression.from_examples(labeled(*labels))


def test_the_regression_loss_is_in_units_of_the_deviation(rows_of: Makers) -> None:
    task = Regression(0.0, 2.0)
    items = task.preprocess(labeled(1.0, 5.0), rows_of("bert"))
    assert [len(item.sequences) for item in items] == [1, 1]
    assert task.loss(torch.tensor([[2.0], [2.0]]), items).item() == pytest.approx((1 + 9) / 2 / 4)


def test_a_gpt_reads_a_pair_in_both_orders(rows_of: Makers, encoder_of: Encoders) -> None:
    rows = rows_of("gpt2")
    examples = [TextExample("x", "y", 1.0), TextExample("y", None, 2.0), TextExample("z", "xx", 5.0)]
    task = Regression(0.0, 2.0)
    items = task.preprocess(examples, rows)
    assert [len(item.sequences) for item in items] == [2, 1, 2]
    read: list[list[tuple[str, str | None]]] = [[("x", "y"), ("y", "x")], [("y", None)], [("z", "xx"), ("xx", "z")]]
    for item, pairs in zip(items, read, strict=True):
        assert [row.ids for row in item.sequences] == [row.ids for row in rows.sequences(pairs)]
    raw = torch.tensor([[0.0], [4.0], [2.0], [1.0], [2.0]])
    assert task.loss(raw, items).item() == pytest.approx((1 + 0 + 3.5**2) / 3 / 4)
    predictions = task.postprocess(examples, items, torch.split(raw, [2, 1, 2]))
    assert [one["value"] for one in predictions] == [2.0, 2.0, 1.5]
    assert predictions[0] == {"text_a": "x", "text_b": "y", "value": 2.0}
    assert predictions[1] == {"text": "y", "value": 2.0}
    assert task.compute_metrics(examples[::2], [predictions[0], {"value": 3.0}])["spearman"] == pytest.approx(100)
    model = TableModel(encoder_of("gpt2"), torch.arange(float(rows.tokenizer.size))[:, None])
    found = dict(compute_logits(model, items, CPU))
    assert found[0].tolist() == [[0.0], [0.0]]  # the last token of each order is the end token


def test_an_encoder_reads_a_pair_once(rows_of: Makers) -> None:
    (item,) = Regression(0.0, 1.0).preprocess([TextExample("x", "y", 1.0)], rows_of("bert"))
    assert len(item.sequences) == 1
