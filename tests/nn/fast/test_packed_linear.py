"""Packed linear layers: the same results, used only where faster, without changes to the model."""

from __future__ import annotations

from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.fast.packed_linear import PackedLinear, supports_packing

pytestmark = pytest.mark.skipif(not supports_packing(), reason="this torch has no packed linear layers")


def packed(packing: PackedLinear) -> int:
    return sum(pack is not None for _, pack in packing.packs.values())


@pytest.mark.parametrize("shape", [(1, 256), (8, 256), (8, 1, 256), (2, 4, 256)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_equal_linear(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(256, 512, bias=bias)
    with torch.inference_mode(), PackedLinear() as packing:
        for number in range(4):
            x = torch.randn(shape)
            torch.testing.assert_close(
                layer(x), F.linear(x.double(), layer.weight.double(), _double(layer.bias)).float()
            )
            assert packed(packing) == (number > 0)
    assert layer.weight.layout is torch.strided


def _double(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.double()


def test_one_copy_serves_every_number_of_rows(one_thread: None) -> None:
    layer = nn.Linear(256, 512)
    x = torch.randn(8, 256)
    with torch.inference_mode():
        expected = layer(x)
        with PackedLinear() as packing:
            for rows in (8, 8, 3, 8, 3, 3, 1, 1):
                torch.testing.assert_close(layer(x[:rows]), expected[:rows])
    assert packed(packing) == 1


@pytest.mark.parametrize("kind", ["many rows", "a small matrix", "half precision", "gradients"])
def test_unsupported_layers_are_unchanged(kind: str) -> None:
    rows = 100 if kind == "many rows" else 8
    layer = nn.Linear(16, 16) if kind == "a small matrix" else nn.Linear(256, 512)
    x = torch.randn(rows, layer.in_features)
    if kind == "half precision":
        layer, x = layer.bfloat16(), x.bfloat16()
    with torch.set_grad_enabled(kind == "gradients"):
        expected = layer(x)
        with PackedLinear() as packing:
            for _ in range(3):
                assert torch.equal(layer(x), expected)
    assert packed(packing) == 0


def test_packing_is_reentrant_and_thread_local() -> None:
    layer, x, packing = nn.Linear(256, 512), torch.randn(8, 256), PackedLinear()
    with torch.inference_mode():
        for _ in range(3):
            with packing:
                layer(x)
        assert packed(packing) == 1
        packing.packs.clear()
        with packing:
            other = Thread(target=lambda: [layer(x) for _ in range(3)])
            other.start()
            other.join()
    assert not packing.packs
