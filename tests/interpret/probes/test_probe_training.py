"""Training heads on stored hidden states: as accurate as scikit-learn, reproducible, in the order of the items."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from regard.interpret.probes.probe_heads import (
    LINEAR,
    BiLstmHeads,
    HiddenStates,
    LayerFeatures,
    LinearHeads,
    ProbeRecipe,
    fit,
    predict,
    single_layers,
    standardize,
)

WIDTH = 12


def noisy(count: int, *, seed: int) -> tuple[HiddenStates, np.ndarray]:
    """Layer 0 is noise; layer 1 separates three classes imperfectly."""
    chance = np.random.default_rng(seed)
    classes = chance.integers(3, size=count)
    centers = np.random.default_rng(99).normal(size=(3, WIDTH))
    values = chance.normal(size=(2, count, WIDTH))
    values[1] += 0.8 * centers[classes]
    return HiddenStates((4 * values + 2).astype(np.float16), (1,) * count), classes


def linear(states: HiddenStates, targets: np.ndarray, *, seed: int = 0) -> LinearHeads:
    features = LayerFeatures(single_layers(2), layers=2, width=WIDTH)
    heads = LinearHeads(features, 3)
    standardize(features, states)
    list(fit(heads, states, targets, LINEAR, seed=seed))
    return heads


def test_linear_heads_are_logistic_regressions() -> None:
    train, right = noisy(600, seed=0)
    test, wanted = noisy(600, seed=1)
    heads = linear(train, right)
    found = predict(heads, test)
    assert found.shape == (2, 600)
    for layer in range(2):
        x = train.values[layer].astype(np.float64)
        mean, deviation = x.mean(0), x.std(0)
        theirs = LogisticRegression(max_iter=1000).fit((x - mean) / deviation, right)
        expected = theirs.predict((test.values[layer].astype(np.float64) - mean) / deviation)
        assert (found[layer] == expected).mean() > 0.97
    assert (found[0] == wanted).mean() < 0.45 < 0.7 < (found[1] == wanted).mean()


def test_training_is_reproducible_with_a_seed() -> None:
    train, right = noisy(300, seed=0)
    first, again, other = (linear(train, right, seed=seed).weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_bilstm_learns_from_neighbors(pooled: bool) -> None:
    """The target is whether a marker occurred earlier in the sequence; no single item reveals it."""
    chance = np.random.default_rng(0)
    lengths = tuple(int(n) for n in chance.integers(3, 9, size=200))
    values = chance.normal(size=(1, sum(lengths), 4)).astype(np.float16)
    sign = chance.random(sum(lengths)) < 0.15
    values[0, :, 0] = np.where(sign, 3, 0)
    starts = np.cumsum(lengths) - lengths
    parts = np.split(sign, starts[1:])
    if pooled:
        targets = np.array([int(part.any()) for part in parts])
    else:
        targets = np.concatenate([np.maximum.accumulate(part) for part in parts]).astype(np.int64)
    states = HiddenStates(values, lengths)
    features = LayerFeatures(single_layers(1), layers=1, width=4)
    standardize(features, states)
    heads = BiLstmHeads(features, 2, pooled=pooled)
    progress = list(
        fit(heads, states, targets, ProbeRecipe(batch_size=32, epochs=1, steps=250, learning_rate=2e-2), seed=0)
    )
    found = predict(heads, states)
    assert found.shape == (1, len(targets))
    assert (found[0] == targets).mean() > 0.97
    assert progress[-1] == (252, 252)  # 36 epochs of 7 steps
