"""The quick forms of GELU equal torch's, forwards and backwards, as far as the numbers' type shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.gelu import gelu, gelu_tanh, one_exp_gelu, one_exp_gelu_tanh

PAIRS = [
    pytest.param(one_exp_gelu, lambda x: F.gelu(x), id="exact"),
    pytest.param(one_exp_gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), id="tanh"),
]


@pytest.mark.parametrize(("quick", "reference"), PAIRS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_values_and_gradients_equal_torchs(
    quick: Callable[[Tensor], Tensor], reference: Callable[[Tensor], Tensor], kind: torch.dtype
) -> None:
    values = torch.cat([torch.linspace(-12, 12, 20_001), torch.tensor([0.0, -0.0, 60.0, -60.0, 1e4, -1e4])]).to(kind)
    ours, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()
    weights = torch.randn(len(values), generator=torch.Generator().manual_seed(0)).to(kind)
    (quick(ours) * weights).sum().backward()
    (reference(theirs) * weights).sum().backward()
    # In bfloat16 the last of 8 bits may be rounded the other way.
    closeness = {"rtol": 1e-5, "atol": 5e-6} if kind == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(quick(ours), reference(theirs), **closeness)
    torch.testing.assert_close(ours.grad, theirs.grad, **closeness)


@pytest.mark.parametrize("quick", [one_exp_gelu, one_exp_gelu_tanh])
def test_gradients_are_those_of_the_function(quick: Callable[[Tensor], Tensor]) -> None:
    x = torch.linspace(-4, 4, 41, requires_grad=True)
    quick(x).sum().backward()
    step = 1e-2
    slopes = (quick(x.detach() + step) - quick(x.detach() - step)) / (2 * step)
    torch.testing.assert_close(x.grad, slopes, rtol=1e-3, atol=1e-4)


def test_without_a_compiler_torchs_own_is_used() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert torch.equal(gelu(x), F.gelu(x))
    assert torch.equal(gelu_tanh(x), F.gelu(x, approximate="tanh"))
