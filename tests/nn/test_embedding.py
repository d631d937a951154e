"""Embeddings: sums of token, position and segment embeddings; image patches as matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regard.nn.embedding import LearnedPositions, PatchEmbedding, SinusoidalPositions, TextEmbedding, sinusoids
from regard.nn.masks import Packed, Padded

Randomise = Callable[..., Any]


@pytest.mark.parametrize("norm", [False, True])
def test_token_position_and_segment_are_summed(device: torch.device, randomised: Randomise, norm: bool) -> None:
    module = TextEmbedding(20, 6, positions=LearnedPositions(9, 6), segments=2, norm=nn.LayerNorm(6) if norm else None)
    randomised(module).to(device)
    ids = torch.randint(20, (2, 5), device=device)
    segments = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]], device=device)
    got = module(ids, Padded(), segments)
    for b in range(2):
        for t in range(5):
            total = module.tokens.weight[ids[b, t]] + module.positions.weight[t]
            total = total + module.segments.weight[segments[b, t]]
            expected = module.norm(total) if norm else total
            torch.testing.assert_close(got[b, t], expected, atol=1e-6, rtol=1e-6)


def test_segments_default_to_zero(device: torch.device, randomised: Randomise) -> None:
    module = randomised(TextEmbedding(20, 6, segments=2)).to(device)
    ids = torch.randint(20, (2, 5), device=device)
    assert torch.equal(module(ids, Padded()), module(ids, Padded(), torch.zeros_like(ids)))
    assert not torch.equal(module(ids, Padded()), module(ids, Padded(), torch.ones_like(ids)))


def test_the_2017_transformer_scales_tokens_and_adds_sinusoids(device: torch.device, randomised: Randomise) -> None:
    module = randomised(TextEmbedding(20, 6, positions=SinusoidalPositions(6), scaled=True)).to(device)
    ids = torch.randint(20, (2, 5), device=device)
    expected = module.tokens.weight[ids] * math.sqrt(6) + sinusoids(torch.arange(5, device=device), 6)
    torch.testing.assert_close(module(ids, Padded()), expected, atol=1e-6, rtol=1e-6)


def test_embedding_without_positions_does_not_depend_on_the_position() -> None:
    module = TextEmbedding(20, 6)
    rows = module(torch.tensor([[3, 4, 3]]), Padded())
    assert torch.equal(rows[0, 0], rows[0, 2]) and torch.equal(rows[0, 1], module.tokens.weight[4])


def test_positions_restart_with_each_packed_sequence(device: torch.device, randomised: Randomise) -> None:
    module = randomised(TextEmbedding(20, 6, positions=LearnedPositions(9, 6), segments=2)).to(device)
    lengths = [3, 1, 4]
    ids, segments = torch.randint(20, (8,), device=device), torch.randint(2, (8,), device=device)
    got = module(ids, Packed.from_lengths(lengths, device=device), segments).split(lengths)
    for piece, text, kinds in zip(got, ids.split(lengths), segments.split(lengths), strict=True):
        assert torch.equal(piece, module(text[None], Padded(), kinds[None])[0])


@pytest.mark.parametrize("positions", [LearnedPositions(9, 6), SinusoidalPositions(6)], ids=["learned", "sinusoidal"])
def test_start_offset(device: torch.device, positions: nn.Module) -> None:
    """Step-by-step decoding: the number of previous tokens is given once for all rows or per row."""
    module = TextEmbedding(20, 6, positions=positions).to(device)
    ids = torch.randint(20, (2, 6), device=device)
    whole = module(ids, Padded())
    torch.testing.assert_close(module(ids[:, 4:], Padded(), start=4), whole[:, 4:], atol=1e-6, rtol=1e-6)
    start = torch.tensor([[2], [5]], device=device)
    each = module(torch.stack([ids[0, 2:3], ids[1, 5:6]]), Padded(), start=start)
    torch.testing.assert_close(each[:, 0], torch.stack([whole[0, 2], whole[1, 5]]), atol=1e-6, rtol=1e-6)


def test_positions_have_the_dtype_of_the_tokens(device: torch.device) -> None:
    module = TextEmbedding(20, 6, positions=SinusoidalPositions(6)).to(device, torch.bfloat16)
    assert module(torch.zeros(1, 3, dtype=torch.long, device=device), Padded()).dtype == torch.bfloat16


def test_dropout_applies_in_training_only() -> None:
    module, ids = TextEmbedding(20, 64, dropout=0.5), torch.arange(20)[None]
    assert torch.equal(module.eval()(ids, Padded()), module.tokens.weight[None])
    assert (module.train()(ids, Padded()) == 0).float().mean().item() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("image", "patch"), [((8, 8), (4, 4)), ((6, 9), (2, 3))])
def test_patches_are_unfolded_and_multiplied(
    device: torch.device, randomised: Randomise, image: tuple[int, int], patch: tuple[int, int]
) -> None:
    module = randomised(PatchEmbedding(image=image, patch=patch, channels=3, width=5, dropout=0.0)).to(device)
    pixels = torch.randn(2, 3, *image, device=device)
    got = module(pixels)
    down, across = image[0] // patch[0], image[1] // patch[1]
    assert got.shape == (2, 1 + down * across, 5)
    columns = nn.functional.unfold(pixels, patch, stride=patch).transpose(1, 2)
    words = columns @ module.project.weight.flatten(1).T + module.project.bias
    torch.testing.assert_close(got[:, 1:], words + module.positions[:, 1:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[:, 0], (module.cls + module.positions[:, :1])[:, 0].expand(2, -1))
    row, column = down - 1, across - 2  # one patch by hand, in row-major order
    corner = pixels[0, :, row * patch[0] :, column * patch[1] : (column + 1) * patch[1]]
    by_hand = (module.project.weight * corner).sum((1, 2, 3)) + module.project.bias
    position = 1 + row * across + column
    torch.testing.assert_close(got[0, position], by_hand + module.positions[0, position], atol=1e-5, rtol=1e-5)


def test_wrong_image_size_is_rejected() -> None:
    module = PatchEmbedding(image=(8, 8), patch=(4, 4), channels=3, width=5, dropout=0.0)
    with pytest.raises(ValueError, match=r"\(8, 8\) pixels, got \(8, 12\)"):
        module(torch.randn(1, 3, 8, 12))
