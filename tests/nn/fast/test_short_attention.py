"""Attention in short sequences equals PyTorch's kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.nn.attention import Attention, FusedProjection
from regard.nn.fast import short_attention as tested
from regard.nn.fast.short_attention import short_attention
from regard.nn.masks import Packed


@pytest.mark.parametrize("lengths", [[1] * 3, [16] * 3, [24] * 5, [20, 19, 17, 16], [3, 5, 2], [64, 60, 50]])
@torch.inference_mode()
def test_equals_the_plain_kernel(lengths: list[int]) -> None:
    layout, count = Packed.from_lengths(lengths), sum(lengths)
    query, key, value = (part.view(count, 4, 8) for part in torch.randn(count, 96).chunk(3, dim=-1))
    found = short_attention(query, key, value, layout, scale=0.3)
    assert found is not None
    start = 0
    for length in lengths:
        q, k, v = (x[start : start + length].transpose(0, 1) for x in (query, key, value))
        expected = F.scaled_dot_product_attention(q, k, v, scale=0.3).transpose(0, 1)
        torch.testing.assert_close(found[start : start + length], expected, atol=1e-6, rtol=1e-5)
        start += length


def test_does_not_apply() -> None:
    def attend(lengths: list[int], dtype: torch.dtype = torch.float32) -> torch.Tensor | None:
        x = torch.randn(sum(lengths), 2, 8, dtype=dtype)
        return short_attention(x, x, x, Packed.from_lengths(lengths), scale=1.0)

    assert attend([20] * 3) is None  # gradients are on
    with torch.inference_mode():
        assert attend([20] * 3) is not None
        assert attend([20] * 2) is None  # few
        assert attend([65] * 3) is None  # long
        assert attend([64, *[2] * 40]) is None  # mostly padding
        assert attend([20] * 3, torch.float64) is None
        layout = Packed.from_lengths([20] * 3)
        unsized = Packed(None, layout.starts, layout.position_ids, 20)
        x = torch.randn(60, 2, 8)
        assert short_attention(x, x, x, unsized, scale=1.0) is None


def test_a_layer_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention(FusedProjection(16, 16), torch.nn.Linear(16, 16), heads=2).eval()
    layout, x = Packed.from_lengths([18, 17, 20]), torch.randn(55, 16)
    with torch.inference_mode():
        found = attention(x, layout)
        assert tested._rectangles[layout].count == 3
    with torch.no_grad():
        monkeypatch.setattr(tested, "MAX_LENGTH", 0)
        torch.testing.assert_close(found, attention(x, layout), atol=1e-6, rtol=1e-5)
