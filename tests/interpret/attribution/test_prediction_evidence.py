"""Evidence: the numbers looked into are those the prediction stands on, and what is told of them is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import Choice, Example, Question, Tagged, Text
from regard.data.readers import words_of
from regard.errors import InputError
from regard.interpret.attention.recording import record_attention
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.prediction_evidence import PredictionEvidence, prediction_evidence
from regard.models import Bert
from regard.tasks.answer import Answering
from regard.tasks.base import Task
from regard.tasks.choose import Choose
from regard.tasks.folder import Solved
from regard.tasks.model import Tuned, numbers
from regard.tasks.solve import predict
from regard.tasks.tag import Tag
from regard.tasks.texts import Classify, Pair, Regress

CPU = torch.device("cpu")
TEXT = "the film is so dull and they love it"


@pytest.fixture
def solved(tiny_bert_folder: Path) -> Any:
    def make(task: Task[Any]) -> Solved:
        encoder, tokenizer = regard.load(tiny_bert_folder)
        torch.manual_seed(1)
        return Solved(task, Tuned.new(encoder, task).eval(), tokenizer, 64)

    return make


def looked(solved: Solved, example: Example) -> tuple[dict[str, Any], list[PredictionEvidence], torch.Tensor]:
    """The prediction, its evidence, and all numbers of the example."""
    prediction = predict(solved, [example], device=CPU)[0]
    items = solved.task.items([example], solved.rows)
    found = dict(numbers(solved.model, items, CPU))
    return prediction, prediction_evidence(solved, example, prediction), found[0]


def test_label(solved: Any) -> None:
    model = solved(Classify(["bad", "good", "so"]))
    prediction, (found,), logits = looked(model, Text(TEXT))
    assert found.about == prediction["label"]
    assert found.integrated.value == pytest.approx(logits[0].max().item(), abs=1e-5)
    assert found.gradient.value == pytest.approx(found.integrated.value, abs=1e-5)
    assert found.integrated.error is not None
    assert abs(found.integrated.error) < 0.02 * sum(map(abs, found.integrated.scores)) + 1e-4
    assert found.tokens == ("[CLS]", *TEXT.split(), "[SEP]")
    assert found.special == (True, *[False] * 9, True)
    assert found.token == 0


def test_attention_is_that_of_the_speaking_token(solved: Any) -> None:
    model = solved(Classify(["bad", "good"]))
    _, (found,), _ = looked(model, Text(TEXT))
    weights = record_attention(model.model.encoder, model.tokenizer, TEXT).maps[0].weights
    np.testing.assert_allclose(found.attention, weights[:, :, 0].mean(1), atol=1e-6)
    np.testing.assert_allclose(found.rollout, rollout(weights)[-1][0], atol=1e-6)
    np.testing.assert_allclose(np.sum(found.attention, axis=1), 1, atol=1e-5)


def test_several_labels(solved: Any) -> None:
    model = solved(Classify(["a", "b", "c"], several=True))
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([9.0, -9.0, 20.0]))
    prediction, found, _ = looked(model, Text(TEXT))
    assert sorted(prediction["label"]) == ["a", "c"]
    assert [one.about for one in found] == ["c", "a"]
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([-9.0, -30.0, -20.0]))
    prediction, found, _ = looked(model, Text(TEXT))
    assert prediction["label"] == []
    assert [one.about for one in found] == ["a"]


def test_pair_and_value(solved: Any) -> None:
    prediction, (found,), logits = looked(solved(Pair(["no", "yes"])), Text("the film", "so long"))
    assert found.about == prediction["label"]
    assert found.integrated.value == pytest.approx(logits[0].max().item(), abs=1e-5)
    assert found.tokens.count("[SEP]") == 2
    prediction, (found,), _ = looked(solved(Regress(0.0, 1.0)), Text("the film", "so long"))
    assert found.integrated.value == pytest.approx(prediction["value"], abs=1e-5)


def test_entities(solved: Any) -> None:
    model = solved(Tag(["O", "B-X", "I-X"]))
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([-1.0, 2.0, 0.0]))
    example = Tagged("we see zebras in the film", tuple(words_of("we see zebras in the film")))
    prediction, found, logits = looked(model, example)
    entities = prediction["entities"]
    assert len(entities) > 1
    assert len(found) == min(4, len(entities))
    for entity, one in zip(entities, found, strict=False):
        word = next(number for number, (start, _) in enumerate(example.words) if start == entity["start"])
        tag = prediction["tags"][word]
        assert one.about == f"{tag} at {example.text.split()[word]}"
        assert one.tokens[one.token].startswith(example.text.split()[word][0])
        assert one.integrated.value == pytest.approx(logits[word, model.task.labels.index(tag)].item(), abs=1e-5)


def test_ends_of_an_answer_whose_tokens_stand_there_twice(solved: Any) -> None:
    model = solved(Answering())
    context = "the film is the film and the film is good"
    prediction, found, logits = looked(model, Question("", "what film", context))
    assert [one.integrated.place for one in found] == ["start", "end"]
    first = 1 + 2 + 1
    words = words_of(context)
    start = next(number for number, (_, end) in enumerate(words) if end > prediction["start"])
    end = max(number for number, (begin, _) in enumerate(words) if begin < prediction["end"])
    for side, (one, token) in enumerate(zip(found, (first + start, first + end), strict=True)):
        assert one.token == token
        assert one.integrated.value == pytest.approx(logits[token, side].item(), abs=1e-5)


def test_no_answer_is_the_first_token(solved: Any) -> None:
    model = solved(Answering(1e9))
    prediction, found, logits = looked(model, Question("", "what film", "the film is good"))
    assert prediction["answer"] == ""
    assert [one.token for one in found] == [0, 0]
    assert found[1].integrated.value == pytest.approx(logits[0, 1].item(), abs=1e-5)


def test_document_is_what_a_page_takes(solved: Any) -> None:
    _, (found,), _ = looked(solved(Classify(["bad", "good"])), Text(TEXT))
    document = found.document()
    assert document["rollout"] == pytest.approx(found.rollout, rel=1e-5)
    assert np.shape(document["attention"]) == (2, 11)


def test_what_cannot_be_looked_into(solved: Any) -> None:
    assert isinstance(solved(Choose()).model.encoder, Bert)
    with pytest.raises(InputError, match="not for a choice"):
        looked(solved(Choose()), Choice("the film", ("is good", "is bad")))
    odd = Tagged("the film", ((0, 2), (2, 8)))
    with pytest.raises(InputError, match="its own words"):
        looked(solved(Tag(["O", "B-X", "I-X"])), odd)
    with pytest.raises(InputError, match="shorten it"):
        looked(solved(Classify(["bad", "good"])), Text("the film " * 60))
