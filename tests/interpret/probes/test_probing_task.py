"""Probing tasks: targets, items and scores, against hand-computed values and the metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.data.examples import TaggedExample, TextExample
from regard.inference.embedding.engine import load_engine
from regard.interpret.probes.layers import classification_task, tagging_task
from regard.tasks.metrics import entity_scores, label_scores
from tests.interpret.runs import finish

TEXTS = [
    TextExample("the film was good and they love it so", label="yes"),
    TextExample("dull", label="no"),
    TextExample("no, a bad day", label="no"),
    TextExample("many people said it was funny", label="yes"),
]
TAGGED = [
    TaggedExample("the water is hot", ((0, 3), (4, 9), (10, 12), (13, 16)), ("O", "B-X", "I-X", "O")),
    TaggedExample("people see", ((0, 6), (7, 10)), ("B-Y", "O")),
]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_tokens_equal_pooled_texts(pooling: str, tiny_bert_folder: Path) -> None:
    ready, whole = (
        load_engine(tiny_bert_folder, layers="concat(0:)", pooling=one, device="cpu") for one in (pooling, "none")
    )
    options = {"pooling": pooling, "seed": 0}
    pooled_once = finish(classification_task(ready, TEXTS, TEXTS[:2], sequences=False, **options))  # type: ignore[arg-type]
    with_sequences = finish(classification_task(whole, TEXTS, TEXTS[:2], sequences=True, **options))  # type: ignore[arg-type]
    for one, other in zip(pooled_once.single, with_sequences.single, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=4e-3, rtol=2e-3)
        assert one.lengths == other.lengths
    assert pooled_once.sequences is None
    assert with_sequences.sequences is not None
    assert with_sequences.sequences[0].lengths[1] == 3  # [CLS] dull [SEP]


def test_label_targets(tiny_bert_folder: Path) -> None:
    ready = load_engine(tiny_bert_folder, layers="concat(0:)", pooling="mean", device="cpu")
    dev = [*TEXTS, TextExample("a film", label="perhaps")]
    found = finish(classification_task(ready, TEXTS, dev, pooling="mean", sequences=False, seed=0))
    assert found.classes == ["no", "yes"]
    assert found.targets.tolist() == [1, 0, 0, 1]
    assert found.unseen == ["perhaps"]
    score, low, high = found.score(np.array([1, 1, 0, 1, 0]))
    truth = [str(text.label) for text in dev]
    assert score == pytest.approx(label_scores(truth, ["yes", "yes", "no", "yes", "no"])["accuracy"])
    assert low < score < high


def test_tag_targets(tiny_bert_folder: Path) -> None:
    ready = load_engine(tiny_bert_folder, layers="concat(0:)", pooling="none", device="cpu")
    found = finish(tagging_task(ready, TAGGED, TAGGED, seed=0))
    assert found.classes == ["B-X", "B-Y", "I-X", "O"]
    assert found.targets.tolist() == [3, 0, 2, 3, 1, 3]
    assert found.single[0].lengths == (1,) * 6
    assert found.sequences is not None
    assert found.sequences[1].lengths == (4, 2)
    assert found.score(found.targets) == (100, 100, 100)
    predicted = np.array([3, 0, 3, 3, 1, 3])
    names = [found.classes[number] for number in predicted]
    expected = entity_scores([one.tags or () for one in TAGGED], [names[:4], names[4:]])["f1"]
    assert found.score(predicted)[0] == pytest.approx(expected) == 50
    assert found.score(predicted)[1:] == (0, 100)  # the bootstrap may sample either sentence twice
