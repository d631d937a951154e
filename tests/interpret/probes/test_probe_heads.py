"""Probe heads: the batched product equals a linear layer per combination; examples do not affect each other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.interpret.probes.probe_heads import (
    BiLstmHeads,
    HiddenStates,
    LayerCombination,
    LayerFeatures,
    LinearHeads,
    deck_combinations,
    scalar_mix,
    single_layers,
    standardize,
)
from regard.nn.masks import Packed

LAYERS, ITEMS, WIDTH, CLASSES = 6, 40, 8, 3


def distinct() -> list[LayerCombination]:
    every = [*single_layers(LAYERS), *deck_combinations(LAYERS), scalar_mix(LAYERS)]
    return list({(one.operation, one.layers): one for one in every}.values())


def states() -> tuple[Tensor, HiddenStates]:
    values = (3 * torch.randn(LAYERS, ITEMS, WIDTH) + 5 * torch.randn(LAYERS, 1, WIDTH)).half()
    return values.float(), HiddenStates(values.numpy(), (1,) * ITEMS)


def features(hidden_states: HiddenStates) -> LayerFeatures:
    made = LayerFeatures(distinct(), layers=LAYERS, width=WIDTH)
    standardize(made, hidden_states)
    for mix in made.mixes:
        mix.s.data.normal_()
        mix.gamma.data.fill_(1.7)
    return made


def test_hand_computed_features() -> None:
    values, hidden_states = states()
    made = features(hidden_states)

    def scaled(x: Tensor) -> Tensor:
        return (x - x.mean(0)) / x.std(0, correction=0)

    found = {one.name: one_found for one, one_found in zip(made.combinations, made(values), strict=True)}
    close = {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(found["layer 3"], scaled(values[3]), **close)
    torch.testing.assert_close(found["Sum All Layers"], scaled(values[1:].sum(0)), **close)
    torch.testing.assert_close(found["Sum Last Four Hidden"], scaled(values[-4:].sum(0)), **close)
    four = torch.cat([scaled(values[number]) for number in (2, 3, 4, 5)], dim=-1)
    torch.testing.assert_close(found["Concat Last Four Hidden"], four, **close)
    weights = made.mixes[0].s.softmax(0)
    mixed = 1.7 * sum(weight * scaled(layer) for weight, layer in zip(weights, values, strict=True))
    torch.testing.assert_close(found["Learned scalar mix"], mixed, **close)
    np.testing.assert_allclose(made.weights, weights.detach().numpy(), rtol=1e-6)


def test_constant_features() -> None:
    hidden_states = HiddenStates(np.full((1, 10, 4), 7, dtype=np.float16), (1,) * 10)
    made = LayerFeatures(single_layers(1), layers=1, width=4)
    standardize(made, hidden_states)
    assert not made(torch.full((1, 10, 4), 7.0))[0].any()


def test_batched_product_equals_a_linear_layer_per_combination() -> None:
    values, hidden_states = states()
    heads = LinearHeads(features(hidden_states), CLASSES)
    heads.weight.data.normal_()
    heads.bias.data.normal_()
    logits = heads(values, Packed.from_lengths([1] * ITEMS))
    assert logits.shape == (len(heads.features.combinations), ITEMS, CLASSES)
    rows = 0
    for index, (one, found) in enumerate(zip(heads.features.combinations, heads.features(values), strict=True)):
        parts = heads.features.feature_width(one) // WIDTH
        weight = heads.weight[rows : rows + parts].reshape(-1, CLASSES)
        rows += parts
        torch.testing.assert_close(logits[index], found @ weight + heads.bias[index], atol=1e-3, rtol=1e-4)
    assert rows == len(heads.weight)


def test_heads_do_not_affect_each_other() -> None:
    values, hidden_states = states()
    heads = LinearHeads(features(hidden_states), CLASSES)
    heads.weight.data.normal_()
    for index in range(len(heads.features.combinations)):
        heads.zero_grad()
        heads(values, Packed.from_lengths([1] * ITEMS))[index].square().sum().backward()
        assert heads.bias.grad is not None
        assert [bool(row.any()) for row in heads.bias.grad] == [
            other == index for other in range(len(heads.features.combinations))
        ]
        mixing = heads.features.combinations[index].operation == "mix"
        assert bool(heads.features.mixes[0].s.grad is not None and heads.features.mixes[0].s.grad.any()) == mixing


def test_bilstm_does_not_mix_examples() -> None:
    values, hidden_states = states()
    heads = BiLstmHeads(features(hidden_states), CLASSES, pooled=False)
    together = heads(values, Packed.from_lengths([10, 25, 5]))
    apart = [heads(values[:, a:b], Packed.from_lengths([b - a])) for a, b in ((0, 10), (10, 35), (35, 40))]
    torch.testing.assert_close(together, torch.cat(apart, dim=1), atol=1e-5, rtol=1e-4)
    changed = values.clone()
    changed[:, 34] += 1  # the last word of the second example
    difference = (heads(changed, Packed.from_lengths([10, 25, 5])) - together).abs().amax(-1)
    assert not difference[:, :10].any()
    assert not difference[:, 35:].any()
    assert (difference[:, 10:35].amin(1) > 0).all()  # the BiLSTM also reads backwards


def test_bilstm_on_whole_texts() -> None:
    values, hidden_states = states()
    heads = BiLstmHeads(features(hidden_states), CLASSES, pooled=True)
    logits = heads(values, Packed.from_lengths([10, 25, 5]))
    assert logits.shape == (len(heads.features.combinations), 3, CLASSES)
    alone = heads(values[:, 10:35], Packed.from_lengths([25]))
    torch.testing.assert_close(logits[:, 1:2], alone, atol=1e-5, rtol=1e-4)


def test_an_odd_width() -> None:
    made = LayerFeatures(single_layers(2), layers=2, width=5)
    assert BiLstmHeads(made, 2, pooled=False)(torch.randn(2, 7, 5), Packed.from_lengths([7])).shape == (2, 7, 2)
