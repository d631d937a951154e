"""T5: shared position bias, unscaled scores, tied and scaled logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.models import T5, T5Config
from regard.nn.masks import Packed, Padded

CONFIG = T5Config(
    vocab_size=20,
    hidden_size=8,
    head_dim=6,
    num_hidden_layers=2,
    num_decoder_layers=3,
    num_attention_heads=2,
    intermediate_size=12,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=16,
    dropout=0.0,
)
GATED = replace(CONFIG, is_gated_act=True, hidden_act="gelu-tanh", scale_decoder_outputs=False)
KINDS: dict[str, tuple[T5Config, tuple[str, ...]]] = {"t5": (CONFIG, ()), "t5 v1.1": (GATED, ("output",))}
Make = Callable[..., Any]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, device: torch.device, randomized: Make) -> Any:
    config, heads = KINDS[request.param]
    return randomized(T5(config, output_heads=heads)).to(device).eval()


def test_output_does_not_depend_on_the_batch(
    device: torch.device, model: Any, check_batch_invariance: Make, texts: Make
) -> None:
    """Both sides padded or both packed, in any order."""
    check_batch_invariance(lambda a, b: model(a[0], b[0], a[1], b[1]), texts(device, sides=2))


def test_packed_and_padded_have_the_same_gradients(device: torch.device, model: Any) -> None:
    read, said = [3, 5, 5], [4, 2, 2]
    rows, told = Padded.from_lengths(read, device=device), Padded.from_lengths(said, device=device)
    ids, target = torch.randint(20, (3, 5), device=device), torch.randint(20, (3, 4), device=device)
    one = model(ids, target, rows, told)[told.mask]
    packed = Packed.from_lengths(read, device=device), Packed.from_lengths(said, device=device)
    other = model(ids[rows.mask], target[told.mask], *packed)
    parameters = [p for name, p in model.named_parameters() if name != "output.weight"]
    weights = torch.linspace(-1, 1, one.numel(), device=device).view_as(one)
    for first, second in zip(
        torch.autograd.grad((one * weights).sum(), parameters),
        torch.autograd.grad((other * weights).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)


def test_only_the_bias_encodes_order(device: torch.device, model: Any) -> None:
    ids, order = torch.randint(20, (1, 5), device=device), torch.tensor([2, 0, 4, 1, 3], device=device)
    assert (model.encode(ids[:, order]) - model.encode(ids)[:, order]).abs().max() > 1e-3
    torch.nn.init.constant_(model.encoder.relative.table.weight, 0.4)
    torch.testing.assert_close(model.encode(ids[:, order]), model.encode(ids)[:, order], atol=1e-5, rtol=1e-4)


def test_one_bias_per_stack_and_none_for_cross_attention(device: torch.device, model: Any) -> None:
    tables = [name for name, _ in model.named_parameters() if "table" in name]
    assert tables == ["encoder.relative.table.weight", "decoder.relative.table.weight"]
    seen = []
    for block in model.decoder.layers:
        block.cross.register_forward_pre_hook(
            lambda _, args, options: seen.append(options.get("bias")), with_kwargs=True
        )
    ids = torch.randint(20, (2, 4), device=device)
    model(ids, ids)
    assert seen == [None] * 3
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    assert all(block.attention.scale == 1.0 for block in model.encoder.layers)


def test_logits_of_tied_and_untied_embeddings(device: torch.device, model: Any) -> None:
    hidden = torch.randn(2, 8, device=device)
    if model.output is None:
        expected = (hidden / 8**0.5) @ model.embedding.tokens.weight.T
    else:
        expected = hidden @ model.output.weight.T
    torch.testing.assert_close(model.logits(hidden), expected, atol=1e-5, rtol=1e-5)


def test_later_targets_do_not_change_earlier_outputs(device: torch.device, model: Any) -> None:
    source, target = torch.randint(20, (2, 5), device=device), torch.randint(10, (2, 6), device=device)
    other = target.clone()
    other[:, 3:] += 10
    before, after = model(source, target), model(source, other)
    torch.testing.assert_close(after[:, :3], before[:, :3], atol=1e-6, rtol=0)
    assert (after[:, 3:] - before[:, 3:]).abs().amax(-1).min() > 1e-3


def test_gradients_reach_all_parameters(device: torch.device, model: Any) -> None:
    ids = torch.randint(20, (2, 14), device=device)
    model.logits(model(ids, ids)).pow(2).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing
