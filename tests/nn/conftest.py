"""What the tests of `nn` share: a device (the CPU, and a GPU where there is one), a seed, and weights worth testing with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn import Tape, record

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device to test on; float32 means float32 there, not its 19-bit stand-in."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield torch.device(request.param)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def randomised() -> Callable[..., Any]:
    """Give every parameter a value that matters: fresh models have zero biases, unit norms and nearly flat attention."""

    def randomise(module: nn.Module, *, std: float = 0.3) -> nn.Module:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.normal_(0.0, std)
                if "norm" in name and name.endswith("weight"):
                    parameter.add_(1.0)
        return module

    return randomise


@pytest.fixture(scope="session")
def explicit() -> Callable[[nn.Module], AbstractContextManager[Tape]]:
    """Send a module's attentions down the path that builds the map, by an edit that changes nothing."""
    return lambda module: record(module, edit=lambda weights, site: weights)


@pytest.fixture(scope="session")
def plain_attention() -> Callable[..., tuple[Tensor, Tensor]]:
    """softmax(scale * q k^T + bias) v for one head, in loops: q (T, D), k and v (S, D) -> output (T, D), weights (T, S)."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        may: Callable[[int, int], bool] = lambda t, s: True,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        weights = torch.zeros(len(query), len(key), dtype=query.dtype)
        output = torch.zeros(len(query), value.shape[1], dtype=query.dtype)
        for t in range(len(query)):
            raised = {}
            for s in range(len(key)):
                if may(t, s):
                    score = sum(float(a) * float(b) for a, b in zip(query[t], key[s], strict=True)) * scale
                    raised[s] = torch.exp(torch.tensor(score + (0.0 if bias is None else float(bias[t, s]))).double())
            total = sum(raised.values())
            for s, part in raised.items():
                weights[t, s] = part / total
                output[t] += weights[t, s] * value[s]
        return output, weights

    return attend
