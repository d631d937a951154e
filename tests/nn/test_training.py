"""Dropout: torch's own where it is not compiled for a GPU, and there a hash that is as good."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.nn.training import Dropout, hashed_dropout

COUNT = 1 << 16
FAR = 4.5  # standard deviations: further out is no chance, as the seed is fixed


def kept(seed: int, p: float = 0.1, count: int = COUNT) -> Tensor:
    """Which of `count` numbers stay."""
    torch.manual_seed(seed)
    return hashed_dropout(torch.ones(count), p) != 0


def correlation(one: Tensor, other: Tensor) -> float:
    """Of two masks, in standard deviations of what chance gives."""
    x, y = ((mask.double() - mask.double().mean()) / mask.double().std() for mask in (one, other))
    return abs((x * y).mean().item()) * math.sqrt(len(x))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_eager_dropout_is_torch_s(device: torch.device, p: float, training: bool) -> None:
    x = torch.randn(3, 50, device=device)
    torch.manual_seed(1)
    ours = Dropout(p).train(training)(x)
    torch.manual_seed(1)
    assert torch.equal(ours, nn.Dropout(p).train(training)(x))


def test_compiled_on_the_cpu_it_is_torch_s_too() -> None:
    module = Dropout(0.5).train()
    torch.manual_seed(1)
    compiled = torch.compile(module, backend="eager", fullgraph=True)(torch.ones(64))
    torch.manual_seed(1)
    assert torch.equal(compiled, module(torch.ones(64)))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_that_is_dropped(device: torch.device, p: float) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        x = hashed_dropout(torch.ones(256, 256, device=device), p)
        dropped = (x == 0).double().mean().item()
        assert abs(dropped - p) < FAR * math.sqrt(p * (1 - p) / COUNT)
        assert abs(x.double().mean().item() - 1) < FAR * math.sqrt(p / (1 - p) / COUNT)
        torch.testing.assert_close(x[x != 0], torch.full_like(x[x != 0], 1 / (1 - p)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_the_mask(device: torch.device, dtype: torch.dtype) -> None:
    # No zeros, which randn has in bfloat16 on some CPUs: they would look dropped.
    x = (torch.rand(40, 30, device=device) + 0.5).to(dtype).requires_grad_()
    y = hashed_dropout(x, 0.3)
    assert y.dtype == dtype and y.shape == x.shape
    mask = (y != 0) / 0.7
    torch.testing.assert_close(y, (x * mask).to(dtype))
    (gradient,) = torch.autograd.grad(y.float().sum(), x)
    torch.testing.assert_close(gradient, mask.to(dtype))


def test_neighbours_do_not_know_of_each_other() -> None:
    """Along a row, down a column, and in every power of two, where a weak hash shows its pattern."""
    for seed in range(4):
        mask = kept(seed)
        for step in [3, 5, 384, 1536, *(1 << power for power in range(15))]:
            assert correlation(mask[step:], mask[:-step]) < FAR, step


def test_calls_do_not_know_of_each_other() -> None:
    masks = [kept(seed) for seed in range(12)]
    for number, one in enumerate(masks):
        for other in masks[:number]:
            assert correlation(one, other) < FAR
    assert len({tuple(mask[:64].tolist()) for mask in masks}) == 12


@pytest.mark.parametrize("difference", [1, 2, 3, 1 << 10, 1 << 15, 1 << 31, 0x55555555])
def test_near_seeds_do_not_know_of_each_other(monkeypatch: pytest.MonkeyPatch, difference: int) -> None:
    """Nor does one give the zeros of another in another order."""

    def mask_of(seed: int) -> Tensor:
        monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.tensor(seed))
        return hashed_dropout(torch.ones(COUNT), 0.1) != 0

    one, other = mask_of(12345), mask_of(12345 ^ difference)
    assert correlation(one, other) < FAR
    if difference < COUNT:
        assert correlation(one[torch.arange(COUNT) ^ difference], other) < 2 * FAR


def test_each_call_draws_anew_and_the_seed_decides() -> None:
    torch.manual_seed(5)
    one, other = hashed_dropout(torch.ones(64), 0.5), hashed_dropout(torch.ones(64), 0.5)
    assert not torch.equal(one, other)
    assert torch.equal(kept(5, 0.5, 64), one != 0)


def test_the_hash_is_for_training_that_is_compiled_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_compiled_for_a_gpu_it_is_the_hash() -> None:
    x = torch.ones(512, 512, device="cuda")
    module = torch.compile(Dropout(0.25).train(), fullgraph=True)
    y = module(x)
    assert abs((y == 0).double().mean().item() - 0.25) < 0.01
    assert torch.equal(module.eval()(x), x)
