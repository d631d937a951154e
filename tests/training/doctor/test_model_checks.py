"""Checks of a model, each with a correct and an incorrect model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.data.examples import Answer, ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.models import Bert, BertConfig, Vit, VitConfig
from regard.tasks.inputs import InputSequence
from regard.training.doctor import examine, examined_model, problems
from regard.training.doctor.examine import (
    constant_predictions,
    dropout_on,
    missing_mask,
    packed,
    padded,
    wrong_segments,
)
from tests.inference.folders import tiny_gpt, tiny_roberta
from tests.training.doctor.seeds import read_of

SHORT, LONG = (
    InputSequence([2, 5, 6, 3], [0, 0, 0, 0], [0]),
    InputSequence([2, *range(7, 27), 3], [0] * 11 + [1] * 11, [0]),
)
PAIR = InputSequence([2, 5, 6, 3, 7, 3], [0, 0, 0, 0, 1, 1], [0])


@pytest.fixture
def bert() -> Bert:
    """A model as initialized for pretraining, where attention is nearly uniform and mistakes are hardest to detect."""
    return Bert(
        BertConfig(
            vocab_size=40,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=32,
        ),
        output_heads=(),
    ).eval()


def without_mask(
    model_function: Callable[[Sequence[InputSequence]], list[Tensor]],
) -> Callable[[Sequence[InputSequence]], list[Tensor]]:
    """A model function that reads padding as text."""

    def wrong(rows: Sequence[InputSequence]) -> list[Tensor]:
        longest = max(map(len, rows))
        full = [
            InputSequence(row.ids + [0] * (longest - len(row)), row.segments + [0] * (longest - len(row)), [0])
            for row in rows
        ]
        return [found[: len(row)] for found, row in zip(model_function(full), rows, strict=True)]

    return wrong


def test_both_layouts_give_the_same_vectors(bert: Bert) -> None:
    for one, other in zip(padded(bert)([SHORT, LONG]), packed(bert)([SHORT, LONG]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert missing_mask({"padded": padded(bert), "packed": packed(bert)}, SHORT, LONG).status == "ok"


def test_a_missing_mask_is_detected_even_in_a_new_model(bert: Bert) -> None:
    found = missing_mask({"packed": packed(bert), "padded": without_mask(padded(bert))}, SHORT, LONG)
    assert found.status == "error"
    assert "a text of 4 tokens change by" in found.evidence
    assert "when padded in a batch with a text of 22" in found.evidence
    assert missing_mask({"packed": packed(bert)}, SHORT, SHORT).status == "skipped"


def test_nan_outputs_are_an_error(bert: Bert) -> None:
    with torch.no_grad():
        bert.embedding.tokens.weight.fill_(float("nan"))
    assert missing_mask({"packed": packed(bert)}, SHORT, LONG).status == "error"


@pytest.mark.parametrize(("needed", "status"), [(True, "error"), (False, "warning")])
@pytest.mark.parametrize("segments", [[0] * 6, [1] * 6, [0, 0, 0, 1, 0, 1], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 2, 2]])
def test_segments_are_zeros_and_then_ones(segments: list[int], needed: bool, status: str, bert: Bert) -> None:
    assert wrong_segments(packed(bert), [PAIR], needed=needed).status == "ok"
    found = wrong_segments(packed(bert), [PAIR, InputSequence(PAIR.ids, segments, [0])], needed=needed)
    assert found.status == status
    assert found.evidence.startswith("1 of 2 pairs")
    assert found.evidence.endswith("".join(map(str, segments)))


def test_a_model_whose_segments_are_all_the_same(bert: Bert) -> None:
    assert bert.embedding.segments is not None
    with torch.no_grad():
        bert.embedding.segments.weight[1] = bert.embedding.segments.weight[0]
    assert wrong_segments(packed(bert), [PAIR], needed=True).status == "warning"
    assert wrong_segments(packed(bert), [PAIR], needed=False).status == "ok"


def test_dropout_on_off_and_without_effect(bert: Bert) -> None:
    assert dropout_on(bert, packed(bert), SHORT).status == "ok"
    bert.encoder.layers[1].train()
    found = dropout_on(bert, packed(bert), SHORT)
    assert found.status == "error"
    assert "such as encoder.layers.1" in found.evidence
    still = Bert(
        BertConfig(
            vocab_size=40,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            dropout=0,
            attention_dropout=0,
        )
    )
    assert dropout_on(still, packed(still), SHORT).status == "warning"


def answers(predicted: Sequence[object], key: str) -> list[dict[str, Any]]:
    return [{key: one} for one in predicted]


@pytest.mark.parametrize(
    ("true", "predicted", "status"),
    [
        (["a"] * 50 + ["b"] * 50, ["a"] * 98 + ["b"] * 2, "error"),
        (["a"] * 50 + ["b"] * 50, ["a"] * 97 + ["b"] * 3, "ok"),
        (["a"] * 95 + ["b"] * 5, ["a"] * 100, "error"),
        (["a"] * 96 + ["b"] * 4, ["a"] * 100, "ok"),  # too few examples to detect a problem
        (["a"] * 10 + ["b"] * 9, ["a"] * 19, "skipped"),
        ([("x",), ()] * 20, [[]] * 40, "error"),
        ([("x",), ()] * 20, [["x"], []] * 20, "ok"),
    ],
)
def test_constant_classes(true: list[Any], predicted: list[object], status: str) -> None:
    found = constant_predictions(
        [TextExample(str(n), None, label) for n, label in enumerate(true)], answers(predicted, "label")
    )
    assert found.status == status


@pytest.mark.parametrize(
    ("examples", "constant", "varied"),
    [
        (
            [TextExample("t", None, n % 5.0) for n in range(40)],
            {"value": [2.0] * 40},
            {"value": [n % 5 / 8 for n in range(40)]},
        ),
        (
            [ChoiceExample("t", ("a", "b"), n % 2) for n in range(40)],
            {"choice": [0] * 40},
            {"choice": [0, 0, 1, 0] * 10},
        ),
        (
            [QuestionExample("1", "q", "c d", (Answer("cd"[n % 2], n % 2 * 2),)) for n in range(40)],
            {"answer": [""] * 40},
            {"answer": ["c", "c", "d", "c"] * 10},
        ),
        (
            [TaggedExample("a b", ((0, 1), (2, 3)), ("B-X", "O"))] * 40,
            {"tags": [["O", "O"]] * 40},
            {"tags": [["O", "O"], ["O", "B-X"]] * 20},
        ),
    ],
    ids=["regress", "choose", "answer", "tag"],
)
def test_constant_predictions_of_other_tasks(
    examples: list[Example], constant: dict[str, list[object]], varied: dict[str, list[object]]
) -> None:
    for predicted, status in ((constant, "error"), (varied, "ok")):
        ((key, values),) = predicted.items()
        assert constant_predictions(examples, answers(values, key)).status == status


@pytest.mark.parametrize("make", [tiny_gpt, tiny_roberta])
def test_models_without_segments(make: Callable[[Path], Path], tmp_path: Path) -> None:
    pairs = read_of([TextExample(f"the film {n}", "the day", "same" if n % 3 else "other") for n in range(30)])
    found = examine(examined_model(load_model(make(tmp_path))), pairs, task="pair")
    assert problems(found) == []
    statuses = {finding.check: finding.status for finding in found}
    assert statuses["wrong segment ids"] == "skipped"
    assert statuses["missing mask"] == statuses["dropout left on"] == "ok"


def test_a_model_without_a_tokenizer_cannot_be_examined(tmp_path: Path) -> None:
    regard.save(
        Vit(
            VitConfig(
                image_size=(8, 8),
                patch_size=(4, 4),
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
            ),
            output_heads=("pooler",),
        ),
        tmp_path / "vit",
    )
    with pytest.raises(InputError, match="reads images and is not fine-tuned"):
        examined_model(load_model(tmp_path / "vit"))
