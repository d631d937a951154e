"""Evidence explains the logits of the prediction, with the attention of the position that the head reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.interpret.attention.recording import record_attention
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.attributions import Evidence, gather_evidence
from regard.models import Bert
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import FineTunedModel, predict
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification

CPU = torch.device("cpu")
TEXT = "the film is so dull and they love it"


@pytest.fixture
def fine_tuned(tiny_bert_folder: Path) -> Any:
    def make(task: Task[Any]) -> FineTunedModel:
        encoder, tokenizer = regard.load(tiny_bert_folder)
        torch.manual_seed(1)
        return FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)

    return make


def explain(fine_tuned: FineTunedModel, example: Example) -> tuple[dict[str, Any], list[Evidence], torch.Tensor]:
    """The prediction, its evidence, and the logits of the example."""
    prediction = predict(fine_tuned, [example], device=CPU)[0]
    items = fine_tuned.task.preprocess([example], fine_tuned.input_builder)
    found = dict(compute_logits(fine_tuned.model, items, CPU))
    return prediction, gather_evidence(fine_tuned, example, prediction), found[0]


def test_evidence_for_a_label(fine_tuned: Any) -> None:
    model = fine_tuned(TextClassification(["bad", "good", "so"]))
    prediction, (found,), logits = explain(model, TextExample(TEXT))
    assert found.about == prediction["label"]
    assert found.integrated.value == pytest.approx(logits[0].max().item(), abs=1e-5)
    assert found.gradient.value == pytest.approx(found.integrated.value, abs=1e-5)
    assert found.integrated.completeness_error is not None
    assert abs(found.integrated.completeness_error) < 0.02 * sum(map(abs, found.integrated.scores)) + 1e-4
    assert found.tokens == ("[CLS]", *TEXT.split(), "[SEP]")
    assert found.special == (True, *[False] * 9, True)
    assert found.token == 0


def test_attention_is_that_of_the_position_the_head_reads(fine_tuned: Any) -> None:
    model = fine_tuned(TextClassification(["bad", "good"]))
    _, (found,), _ = explain(model, TextExample(TEXT))
    weights = record_attention(model.model.encoder, model.tokenizer, TEXT).maps[0].weights
    np.testing.assert_allclose(found.attention, weights[:, :, 0].mean(1), atol=1e-6)
    np.testing.assert_allclose(found.rollout, rollout(weights)[-1][0], atol=1e-6)
    np.testing.assert_allclose(np.sum(found.attention, axis=1), 1, atol=1e-5)


def test_evidence_for_multiple_labels(fine_tuned: Any) -> None:
    model = fine_tuned(TextClassification(["a", "b", "c"], multi_label=True))
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([9.0, -9.0, 20.0]))
    prediction, found, _ = explain(model, TextExample(TEXT))
    assert sorted(prediction["label"]) == ["a", "c"]
    assert [one.about for one in found] == ["c", "a"]
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([-9.0, -30.0, -20.0]))
    prediction, found, _ = explain(model, TextExample(TEXT))
    assert prediction["label"] == []
    assert [one.about for one in found] == ["a"]


def test_evidence_for_text_pairs_and_regression(fine_tuned: Any) -> None:
    pair = TextExample("the film", "so long")
    prediction, (found,), logits = explain(fine_tuned(PairClassification(["no", "yes"])), pair)
    assert found.about == prediction["label"]
    assert found.integrated.value == pytest.approx(logits[0].max().item(), abs=1e-5)
    assert found.tokens.count("[SEP]") == 2
    prediction, (found,), _ = explain(fine_tuned(Regression(0.0, 1.0)), pair)
    assert found.integrated.value == pytest.approx(prediction["value"], abs=1e-5)


def test_evidence_for_entities(fine_tuned: Any) -> None:
    model = fine_tuned(TokenClassification(["O", "B-X", "I-X"]))
    with torch.no_grad():
        model.model.head.output.bias.copy_(torch.tensor([-1.0, 2.0, 0.0]))
    example = TaggedExample("we see zebras in the film", tuple(split_words("we see zebras in the film")))
    prediction, found, logits = explain(model, example)
    entities = prediction["entities"]
    assert len(entities) > 1
    assert len(found) == min(4, len(entities))
    for entity, one in zip(entities, found, strict=False):
        word = next(number for number, (start, _) in enumerate(example.words) if start == entity["start"])
        tag = prediction["tags"][word]
        assert one.about == f"{tag} at {example.text.split()[word]}"
        assert one.tokens[one.token].startswith(example.text.split()[word][0])
        assert one.integrated.value == pytest.approx(logits[word, model.task.labels.index(tag)].item(), abs=1e-5)


def test_evidence_for_answers_with_repeated_tokens(fine_tuned: Any) -> None:
    model = fine_tuned(QuestionAnswering())
    context = "the film is the film and the film is good"
    prediction, found, logits = explain(model, QuestionExample("", "what film", context))
    assert [one.integrated.target for one in found] == ["start", "end"]
    first = 1 + 2 + 1
    words = split_words(context)
    start = next(number for number, (_, end) in enumerate(words) if end > prediction["start"])
    end = max(number for number, (begin, _) in enumerate(words) if begin < prediction["end"])
    for side, (one, token) in enumerate(zip(found, (first + start, first + end), strict=True)):
        assert one.token == token
        assert one.integrated.value == pytest.approx(logits[token, side].item(), abs=1e-5)


def test_missing_answer_is_explained_at_the_first_token(fine_tuned: Any) -> None:
    model = fine_tuned(QuestionAnswering(1e9))
    prediction, found, logits = explain(model, QuestionExample("", "what film", "the film is good"))
    assert prediction["answer"] == ""
    assert [one.token for one in found] == [0, 0]
    assert found[1].integrated.value == pytest.approx(logits[0, 1].item(), abs=1e-5)


def test_unsupported_examples_are_rejected(fine_tuned: Any) -> None:
    assert isinstance(fine_tuned(MultipleChoice()).model.encoder, Bert)
    with pytest.raises(InputError, match="the input of choose"):
        explain(fine_tuned(MultipleChoice()), ChoiceExample("the film", ("is good", "is bad")))
    odd = TaggedExample("the film", ((0, 2), (2, 8)))
    with pytest.raises(InputError, match="its own words"):
        explain(fine_tuned(TokenClassification(["O", "B-X", "I-X"])), odd)
    with pytest.raises(InputError, match="shorten it"):
        explain(fine_tuned(TextClassification(["bad", "good"])), TextExample("the film " * 60))
