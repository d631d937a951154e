"""Dropout: torch's implementation, except when compiled for a GPU, where a hash of equal quality is used."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.nn.training import Dropout, hashed_dropout

COUNT = 1 << 16
MAX_DEVIATION = 4.5  # standard deviations; the seed is fixed, so that larger deviations are errors


def dropout_mask(seed: int, p: float = 0.1, count: int = COUNT) -> Tensor:
    """Mask of the values that are not dropped."""
    torch.manual_seed(seed)
    return hashed_dropout(torch.ones(count), p) != 0


def correlation(one: Tensor, other: Tensor) -> float:
    """The correlation of two masks, in standard deviations of independent masks."""
    x, y = ((mask.double() - mask.double().mean()) / mask.double().std() for mask in (one, other))
    return abs((x * y).mean().item()) * math.sqrt(len(x))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_eager_dropout_equals_torch(device: torch.device, p: float, training: bool) -> None:
    x = torch.randn(3, 50, device=device)
    torch.manual_seed(1)
    ours = Dropout(p).train(training)(x)
    torch.manual_seed(1)
    assert torch.equal(ours, nn.Dropout(p).train(training)(x))


def test_dropout_compiled_for_the_cpu_equals_torch() -> None:
    module = Dropout(0.5).train()
    torch.manual_seed(1)
    compiled = torch.compile(module, backend="eager", fullgraph=True)(torch.ones(64))
    torch.manual_seed(1)
    assert torch.equal(compiled, module(torch.ones(64)))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_dropped_fraction(device: torch.device, p: float) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        x = hashed_dropout(torch.ones(256, 256, device=device), p)
        dropped = (x == 0).double().mean().item()
        assert abs(dropped - p) < MAX_DEVIATION * math.sqrt(p * (1 - p) / COUNT)
        assert abs(x.double().mean().item() - 1) < MAX_DEVIATION * math.sqrt(p / (1 - p) / COUNT)
        torch.testing.assert_close(x[x != 0], torch.full_like(x[x != 0], 1 / (1 - p)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_the_mask(device: torch.device, dtype: torch.dtype) -> None:
    # Avoid zeros, which randn returns in bfloat16 on some CPUs: they would look dropped.
    x = (torch.rand(40, 30, device=device) + 0.5).to(dtype).requires_grad_()
    y = hashed_dropout(x, 0.3)
    assert y.dtype == dtype and y.shape == x.shape
    mask = (y != 0) / 0.7
    torch.testing.assert_close(y, (x * mask).to(dtype))
    (gradient,) = torch.autograd.grad(y.float().sum(), x)
    torch.testing.assert_close(gradient, mask.to(dtype))


def test_nearby_values_are_independent() -> None:
    """Along rows and columns and at power-of-two distances, where weak hashes show patterns."""
    for seed in range(4):
        mask = dropout_mask(seed)
        for step in [3, 5, 384, 1536, *(1 << power for power in range(15))]:
            assert correlation(mask[step:], mask[:-step]) < MAX_DEVIATION, step


def test_calls_are_independent() -> None:
    masks = [dropout_mask(seed) for seed in range(12)]
    for number, one in enumerate(masks):
        for other in masks[:number]:
            assert correlation(one, other) < MAX_DEVIATION
    assert len({tuple(mask[:64].tolist()) for mask in masks}) == 12


@pytest.mark.parametrize("difference", [1, 2, 3, 1 << 10, 1 << 15, 1 << 31, 0x55555555])
def test_nearby_seeds_are_independent(monkeypatch: pytest.MonkeyPatch, difference: int) -> None:
    """The masks are not permutations of each other either."""

    def mask_of(seed: int) -> Tensor:
        monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.tensor(seed))
        return hashed_dropout(torch.ones(COUNT), 0.1) != 0

    one, other = mask_of(12345), mask_of(12345 ^ difference)
    assert correlation(one, other) < MAX_DEVIATION
    if difference < COUNT:
        assert correlation(one[torch.arange(COUNT) ^ difference], other) < 2 * MAX_DEVIATION


def test_calls_differ_and_are_reproducible_with_a_seed() -> None:
    torch.manual_seed(5)
    one, other = hashed_dropout(torch.ones(64), 0.5), hashed_dropout(torch.ones(64), 0.5)
    assert not torch.equal(one, other)
    assert torch.equal(dropout_mask(5, 0.5, 64), one != 0)


def test_hash_is_used_only_for_training_compiled_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    monkeypatch.setattr("regard.nn.training.hashed_dropout", lambda x, p: used.append(p) or x)
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        Dropout(0.1).train()(x)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        Dropout(0.2).eval()(x)
        Dropout(0.3).train()(x.cpu())
        Dropout(0.4).train()(x)
        Dropout(0.0).train()(x)
        Dropout(1.0).train()(x)
    assert used == [0.4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_dropout_compiled_for_a_gpu_uses_the_hash() -> None:
    x = torch.ones(512, 512, device="cuda")
    module = torch.compile(Dropout(0.25).train(), fullgraph=True)
    y = module(x)
    assert abs((y == 0).double().mean().item() - 0.25) < 0.01
    assert torch.equal(module.eval()(x), x)
