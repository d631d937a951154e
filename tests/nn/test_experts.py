"""Mixtures of experts: the sum of the chosen experts, in training, in copies for inference and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.engine.precision import inference_copy
from regard.errors import InputError
from regard.nn.block import LayerConfig
from regard.nn.experts import Experts
from regard.nn.masks import Padded
from tests.parity.references import ids, pair_of

LAYER = LayerConfig(12, 3, 7, gated=True, bias=False)


def new_experts(**options: object) -> Experts:
    torch.manual_seed(0)
    experts = Experts(LAYER, count=5, **{"top": 2, "normalize": True, **options})  # type: ignore[arg-type]
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return experts


def dense(experts: Experts, x: Tensor) -> Tensor:
    """Every expert for every token, with weights of 0 for those that are not chosen."""
    shares = experts.router(x).softmax(-1)
    weights = shares.masked_fill(shares < shares.topk(experts.top).values[..., -1:], 0)
    weights = weights / weights.sum(-1, keepdim=True) if experts.normalize else weights
    return sum(weights[..., number, None] * expert(x) for number, expert in enumerate(experts.experts))  # type: ignore[return-value]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_experts_are_a_weighted_sum(normalize: bool, training: bool) -> None:
    experts = new_experts(normalize=normalize).train(training)
    x = torch.randn(2, 4, 12)
    torch.testing.assert_close(experts(x), dense(experts, x))
    torch.testing.assert_close(experts(x.flatten(0, 1)), dense(experts, x).flatten(0, 1))


def test_a_shared_expert_is_added() -> None:
    experts = new_experts(shared=LAYER)
    x = torch.randn(4, 12)
    assert experts.shared is not None and experts.shared_gate is not None
    expected = dense(experts, x) + torch.sigmoid(experts.shared_gate(x)) * experts.shared(x)
    torch.testing.assert_close(experts(x), expected)


def test_each_expert_has_a_gradient_in_training() -> None:
    experts = new_experts().train()
    experts(torch.randn(1, 12)).sum().backward()
    assert all(parameter.grad is not None for parameter in experts.parameters())


def test_more_experts_per_token_than_there_are_are_refused() -> None:
    with pytest.raises(InputError, match="6 of 5 experts"):
        new_experts(top=6)


def test_copies_keep_the_router(tmp_path: Path) -> None:
    """In 8 bits only the experts are rounded; the router has the weights of the model."""
    model = pair_of("qwen2-moe", tmp_path).ours
    tokens, layout = ids()
    with torch.no_grad():
        expected = model(tokens, layout)[layout.mask]
        for precision, limit in (("fp32", 1e-4), ("int8", 0.2)):
            copy = inference_copy(model, precision)
            assert copy.decoder.layers[1].ffn.router.weight is model.decoder.layers[1].ffn.router.weight
            found = copy(tokens, layout)[layout.mask]
            assert (found - expected).norm() < limit * expected.norm(), precision
        half, _ = regard.load(tmp_path, dtype=torch.bfloat16)
        found = half(tokens, layout)[layout.mask].float()
        assert torch.nn.functional.cosine_similarity(found, expected).median() > 0.99


def test_gradient_checkpointing_repeats_the_choice(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    model = pair_of("mixtral", tmp_path).ours.train()
    layer, x = model.decoder.layers[0], torch.randn(2, 5, 24)
    gradients = []
    for call in (lambda y: layer(y, Padded()), lambda y: checkpoint(layer, y, Padded(), use_reentrant=False)):
        y = x.clone().requires_grad_()
        call(y).pow(2).sum().backward()
        gradients.append(y.grad)
    torch.testing.assert_close(*gradients)
