"""Outputs do not depend on the batch, and the model is not changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regard.data.examples import ChoiceExample, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.engine import tuning
from regard.errors import InputError
from regard.models import Bert, Elmo, ElmoConfig
from regard.tasks import encoder_with_head as tested
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.inputs import InputBuilder
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task, TaskInput
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from tests.inference.folders import randomized
from tests.tasks.conftest import Encoders, Makers
from tests.tasks.table_model import TableModel

CPU = torch.device("cpu")
FAMILIES = ("bert", "distilbert", "roberta", "gpt2", "elmo")
TEXTS = ["the film", "good", "", "a long day of water and people", "x y z", "bad film that he may like", "the"]
LONG = " ".join(TEXTS * 4)


def classification_inputs(rows: InputBuilder) -> tuple[Task[Any], list[TaskInput]]:
    task = TextClassification(["x", "y", "z"])
    return task, task.preprocess([TextExample(text, None if len(text) % 2 else "good") for text in TEXTS], rows)


def regression_inputs(rows: InputBuilder) -> tuple[Task[Any], list[TaskInput]]:
    task = Regression(0.0, 1.0)
    return task, task.preprocess([TextExample(text, "good") for text in TEXTS], rows)


def choice_inputs(rows: InputBuilder) -> tuple[Task[Any], list[TaskInput]]:
    task = MultipleChoice()
    return task, task.preprocess(
        [ChoiceExample(text, ("good", "bad day", "x")[: 2 + len(text) % 2]) for text in TEXTS], rows
    )


def tagging_inputs(rows: InputBuilder) -> tuple[Task[Any], list[TaskInput]]:
    task = TokenClassification(["O", "B-A", "I-A"])
    return task, task.preprocess([TaggedExample(text, split_words(text)) for text in (*TEXTS, LONG)], rows)


def answering_inputs(rows: InputBuilder) -> tuple[Task[Any], list[TaskInput]]:
    task = QuestionAnswering()
    return task, task.preprocess([QuestionExample("q", "who", text) for text in (*TEXTS, LONG)], rows)


TaskBuilder = Callable[[InputBuilder], tuple[Task[Any], list[TaskInput]]]
KINDS: tuple[TaskBuilder, ...] = (
    classification_inputs,
    regression_inputs,
    choice_inputs,
    tagging_inputs,
    answering_inputs,
)


def tuned(encoder_of: Encoders, family: str, task: Task[Any]) -> EncoderWithHead:
    model = EncoderWithHead.from_encoder(encoder_of(family), task)
    randomized(model.head)
    if model.mix is not None:
        randomized(model.mix)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("build_task", KINDS)
def test_outputs_do_not_depend_on_the_batch(
    rows_of: Makers, encoder_of: Encoders, monkeypatch: pytest.MonkeyPatch, family: str, build_task: TaskBuilder
) -> None:
    task, items = build_task(rows_of(family))
    model = tuned(encoder_of, family, task)
    model.train()
    model.encoder.embedding.eval()
    before = [part.training for part in model.modules()]
    assert {*before} == {True, False}
    monkeypatch.setattr(tuning, "DEFAULT_TOKENS", 60)
    found = dict(compute_logits(model, items, CPU))
    assert [part.training for part in model.modules()] == before
    assert sorted(found) == list(range(len(items)))
    assert list(found) != sorted(found)  # the test is only meaningful if they come in another order
    model.eval()
    for index, item in enumerate(items):
        with torch.no_grad():
            alone = torch.cat([model(model.collate([TaskInput((row,), 0)])) for row in item.sequences])
        sizes = [len(row) if row.positions is None else len(row.positions) for row in item.sequences]
        assert found[index].shape == (sum(sizes), task.num_outputs)
        torch.testing.assert_close(found[index], alone, atol=1e-5, rtol=0)
    spread = torch.cat([*found.values()]).std(0)
    assert (spread > 1e-3).all()  # otherwise all outputs would be equal
    with torch.no_grad():
        packed = model(model.collate(items[::-1]))
    torch.testing.assert_close(
        packed, torch.cat([found[index] for index in range(len(items))][::-1]), atol=1e-5, rtol=0
    )


def test_each_output_belongs_to_its_item(rows_of: Makers, encoder_of: Encoders) -> None:
    rows = rows_of("bert")
    _, items = tagging_inputs(rows)
    model = TableModel(encoder_of("bert"), torch.arange(float(rows.tokenizer.size))[:, None])
    for index, part in compute_logits(model, items, CPU):
        row = items[index].sequences[0]
        assert part[:, 0].tolist() == [row.ids[token] for token in row.positions or ()]
    assert list(compute_logits(model, [], CPU)) == []


def test_segments_reach_the_model(rows_of: Makers, encoder_of: Encoders) -> None:
    task = TextClassification(["x", "y"])
    model = tuned(encoder_of, "bert", task).eval()
    (item,) = task.preprocess([TextExample("the film", "good")], rows_of("bert"))
    inputs = model.collate([item])
    assert inputs.segments.tolist() == [0, 0, 0, 0, 1, 1]
    with torch.no_grad():
        blind = tested.TaskBatch(inputs.batch, torch.zeros_like(inputs.segments), inputs.positions)
        assert not torch.allclose(model(inputs), model(blind), atol=1e-4)


def test_a_new_head(encoder_of: Encoders) -> None:
    encoder = encoder_of("bert")
    assert isinstance(encoder, Bert)
    assert encoder.pooler is not None
    pooler = encoder.pooler.linear.weight.clone()
    model = EncoderWithHead.from_encoder(encoder, TextClassification(["x", "y", "z"]))
    assert torch.equal(model.head.state_dict()["pool.0.weight"], pooler)
    assert all(getattr(encoder, head) is None for head in ("pooler", "mlm_head", "nsp_head"))
    assert model.head.output.weight.shape == (3, 24)
    assert 0.01 < model.head.output.weight.std() < 0.03
    assert model.head.output.bias.count_nonzero() == 0
    assert model.head.dropout.p == 0.1
    assert EncoderWithHead.from_encoder(encoder_of("bert"), QuestionAnswering()).head.pool is None
    assert EncoderWithHead.from_encoder(encoder_of("gpt2"), TextClassification(["x", "y"])).head.output.bias is None
    assert (
        EncoderWithHead.from_encoder(encoder_of("gpt2"), TokenClassification(["O", "B-A"])).head.output.bias is not None
    )


def test_models_that_cannot_be_fine_tuned() -> None:
    with pytest.raises(InputError, match=r"choose needs a BERT, a GPT or another .* got a Linear"):
        EncoderWithHead.from_encoder(nn.Linear(2, 2), MultipleChoice())


def test_an_elmo_uses_all_layers(rows_of: Makers, encoder_of: Encoders) -> None:
    """Compared with gamma * sum_j softmax(s)_j h_j: at the position of a word, or the mean over a text."""
    for build_task in (classification_inputs, tagging_inputs):
        task, items = build_task(rows_of("elmo"))
        model = tuned(encoder_of, "elmo", task).eval()
        assert model.mix is not None and isinstance(model.encoder, Elmo) and model.encoder.output is None
        row = items[1].sequences[0]
        with torch.no_grad():
            weights = model.mix.s.exp() / model.mix.s.exp().sum()
            states = [state[0] for state in model.encoder.states(torch.tensor([row.ids]))]
            mixed = sum(weight * state for weight, state in zip(weights, states, strict=True)) * model.mix.gamma
            inputs_of_head = mixed.mean(0, keepdim=True) if task.pooled else mixed[row.positions]
            expected = inputs_of_head @ model.head.output.weight.T + model.head.output.bias
            found = model(model.collate([items[1]]))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert model.head.output.weight.shape[1] == 24


def test_an_elmo_that_reads_characters_cannot_be_fine_tuned() -> None:
    with pytest.raises(InputError, match="needs an ELMo with a tokenizer; this one reads characters"):
        EncoderWithHead.from_encoder(
            Elmo(ElmoConfig(vocab_size=9, num_characters=9, hidden_size=4, cell_size=4)), MultipleChoice()
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_parameters_are_trained(rows_of: Makers, encoder_of: Encoders, family: str) -> None:
    task = TextClassification(["x", "y"])
    model = tuned(encoder_of, family, task).train()
    items = task.preprocess([TextExample("the film", None, "x"), TextExample("good", None, "y")], rows_of(family))
    torch.autograd.backward(task.loss(model(model.collate(items)), items))
    still = [name for name, one in model.named_parameters() if one.grad is None or one.grad.count_nonzero() == 0]
    assert still == []
