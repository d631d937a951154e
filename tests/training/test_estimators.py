"""The estimators as scikit-learn uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from regard.errors import InputError
from regard.training.estimators import Tagger, TextClassifier
from regard.training.recipes.finetuning import baseline
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.recipe import FineTuningRecipe

GOOD = ["the film is good", "we love it", "so funny now", "a good day", "they love the film", "it was funny"]
BAD = ["the film is bad", "it was dull", "no one was there", "a bad day", "so dull now", "the sound was bad"]
QUICK: dict[str, Any] = {"epochs": 40, "batch_size": 4, "learning_rate": 3e-3, "device": "cpu"}


@pytest.fixture
def classifier(tiny_bert_folder: Path, one_thread: None) -> TextClassifier:
    return TextClassifier(str(tiny_bert_folder), **QUICK)


def test_a_classifier_learns_predicts_and_scores(classifier: TextClassifier) -> None:
    texts, labels = GOOD + BAD, [1] * 6 + [0] * 6
    assert classifier.fit(texts, labels) is classifier
    assert classifier.classes_.tolist() == [0, 1]
    probabilities = classifier.predict_proba(texts)
    assert probabilities.shape == (12, 2) and np.allclose(probabilities.sum(axis=1), 1)
    assert (classifier.predict(texts) == probabilities.argmax(axis=1)).all()
    assert classifier.score(texts, labels) >= 0.9
    assert classifier.predict_proba([]).shape[0] == 0


def test_the_same_seed_gives_the_same_probabilities(classifier: TextClassifier) -> None:
    texts, labels = GOOD + BAD, ["yes"] * 6 + ["no"] * 6
    one = classifier.fit(texts, labels).predict_proba(texts)
    other = clone(classifier).fit(texts, labels).predict_proba(texts)
    assert np.array_equal(one, other)
    assert classifier.predict(texts).dtype.kind == "U"


def test_pairs(tiny_bert_folder: Path, one_thread: None) -> None:
    pairs = [(a, b) for a in GOOD[:3] for b in (GOOD[0], BAD[0])]
    classifier = TextClassifier(str(tiny_bert_folder), **{**QUICK, "epochs": 1}).fit(pairs, ["same", "other"] * 3)
    assert set(classifier.predict(pairs)) <= {"same", "other"}


def test_the_settings_are_those_of_regard_train(
    tiny_bert_folder: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    class Recorded(FineTuningRecipe):
        def __init__(self, task: Any, items: Any, config: FineTuningConfig, **options: Any) -> None:
            used.append((task, config.training))
            super().__init__(task, items, config, **options)

    monkeypatch.setattr(baseline, "FineTuningRecipe", Recorded)
    options: dict[str, Any] = {"model": str(tiny_bert_folder), "device": "cpu"}
    TextClassifier(**options).fit(GOOD[:2] + BAD[:2], [1, 1, 0, 0])
    TextClassifier(**options).fit([(GOOD[0], GOOD[1]), (GOOD[0], BAD[0])], ["same", "other"])
    Tagger(**options).fit([["a", "film"], ["a", "day"]], [["O", "B-THING"], ["O", "O"]])
    assert [task.name for task, _ in used] == ["classify", "pair", "tag"]
    for task, settings in used:
        config = FineTuningConfig.load(defaults={"training": task.training_defaults})
        assert settings.model_dump(exclude={"select"}) == config.training.model_dump(exclude={"select"})
    TextClassifier(epochs=2, learning_rate=1e-3, batch_size=3, **options).fit(GOOD[:2] + BAD[:2], [1, 1, 0, 0])
    settings = used[-1][1]
    assert (settings.num_epochs, settings.learning_rate, settings.batch_size) == (2, 1e-3, 3)


def test_cross_validation_and_parameters(classifier: TextClassifier) -> None:
    found = cross_val_score(clone(classifier).set_params(epochs=1), GOOD + BAD, [1] * 6 + [0] * 6, cv=2)
    assert len(found) == 2 and ((found >= 0) & (found <= 1)).all()
    assert clone(classifier).get_params() == classifier.get_params()
    assert repr(classifier).startswith("TextClassifier(model=")
    with pytest.raises(InputError, match="no parameter 'epoch'; did you mean 'epochs'"):
        classifier.set_params(epoch=3)


def test_wrong_inputs_are_refused(classifier: TextClassifier) -> None:
    with pytest.raises(InputError, match="call fit first"):
        classifier.predict(["the film"])
    with pytest.raises(InputError, match="12 texts and 11 labels"):
        classifier.fit(GOOD + BAD, [1] * 11)
    with pytest.raises(InputError, match="put it in a list"):
        classifier.fit("the film", [1])
    with pytest.raises(InputError, match="int in row 1"):
        classifier.fit(["the film", 3], [1, 0])  # type: ignore[list-item]
    with pytest.raises(InputError, match="at least two classes"):
        classifier.fit(GOOD, [1] * 6)


def test_a_tagger_learns(tiny_bert_folder: Path, one_thread: None) -> None:
    sentences = [text.split() for text in GOOD + BAD]
    tags = [["B-THING" if word == "film" else "O" for word in words] for words in sentences]
    tagger = Tagger(str(tiny_bert_folder), **QUICK).fit(sentences, tags)
    assert tagger.predict(sentences) == tags and tagger.score(sentences, tags) == 1.0
    found = cross_val_score(Tagger(str(tiny_bert_folder), **{**QUICK, "epochs": 1}), sentences, tags, cv=2)
    assert len(found) == 2 and ((found >= 0) & (found <= 1)).all()
    with pytest.raises(InputError, match="3 words and 2 tags"):
        tagger.fit([["a", "good", "film"]], [["O", "O"]])
    with pytest.raises(InputError, match="split it into words"):
        tagger.predict(["a good film"])
