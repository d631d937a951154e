"""Logistic regression on vectors: what it gets where the answer is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from regard.errors import InputError
from regard.interpret.probes.regression import judge, require_sklearn


def test_noise_and_signal() -> None:
    chance = np.random.default_rng(0)
    labels = ["spam" if chance.random() < 0.3 else "ham" for _ in range(400)]
    noise = chance.normal(size=(400, 8)).astype(np.float32)
    signal = noise.copy()
    signal[:, 3] += [6 if label == "spam" else -6 for label in labels]
    found, none = judge(signal, labels), judge(noise, labels)
    assert (found.train, found.test) == (300, 100)
    assert found.accuracy == found.mean == 100
    assert found.deviation == 0
    assert found.guess == round(100 * labels.count("ham") / 400)  # each label in its share
    assert none.accuracy < 80
    assert none.mean == pytest.approx(none.guess, abs=6)


def test_the_folds_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    chance = np.random.default_rng(1)
    labels = chance.choice(["a", "b", "c"], size=90).tolist()
    vectors = chance.normal(size=(90, 4)).astype(np.float32)
    vectors[:, 0] += [float(label == "a") for label in labels]
    expected = 100 * cross_val_score(LogisticRegression(max_iter=1000), vectors, labels, cv=5)
    found = judge(vectors, labels, seed=3)
    assert found.mean == pytest.approx(expected.mean())
    assert found.deviation == pytest.approx(expected.std())
    assert judge(vectors, labels, seed=3) == found
    assert judge(vectors, labels, seed=4).accuracy != found.accuracy


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        require_sklearn()
