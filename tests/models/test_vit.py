"""ViT: an image is a sequence of patches for the same encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.models import Vit, VitConfig
from regard.nn.masks import Padded

CONFIG = VitConfig(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    image_size=(8, 12),
    patch_size=(4, 4),
    num_labels=3,
)
Make = Callable[..., Any]


@pytest.fixture
def model(device: torch.device, randomized: Make) -> Any:
    return randomized(Vit(CONFIG)).to(device).eval()


def test_image_is_a_sequence_of_patches(device: torch.device, model: Any) -> None:
    pixels = torch.randn(2, 3, 8, 12, device=device)
    hidden = model(pixels)
    assert hidden.shape == (2, 1 + 2 * 3, 8)
    x = model.embedding(pixels)
    for block in model.encoder.layers:
        x = x + block.attention(block.attention_residual.norm(x), Padded())
        x = x + block.ffn(block.ffn_residual.norm(x))
    torch.testing.assert_close(hidden, model.encoder.norm(x), atol=1e-5, rtol=1e-5)
    logits = hidden[:, 0] @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model.classifier(hidden[:, 0]), logits, atol=1e-5, rtol=1e-5)


def test_base_model_has_16_by_16_patches() -> None:
    config = VitConfig()
    assert (config.image_size, config.patch_size, config.num_hidden_layers, config.hidden_size) == (
        (224, 224),
        (16, 16),
        12,
        768,
    )
    with torch.device("meta"):
        model = Vit(config)
    assert model.embedding.positions.shape == (1, 197, 768)
    assert sum(p.numel() for p in model.parameters()) == 86_567_656  # the published base model with 1000 labels


def test_images_of_a_batch_are_independent(device: torch.device, model: Any) -> None:
    pixels = torch.randn(4, 3, 8, 12, device=device)
    for i in range(4):
        torch.testing.assert_close(model(pixels[i : i + 1])[0], model(pixels)[i], atol=1e-5, rtol=1e-5)


def test_patches_have_positions(device: torch.device, model: Any) -> None:
    """Swapping two patches swaps their vectors only if there are no position embeddings."""
    pixels = torch.randn(1, 3, 8, 12, device=device)
    swapped = pixels.clone()
    swapped[..., :4, :4], swapped[..., :4, 4:8] = pixels[..., :4, 4:8], pixels[..., :4, :4]
    order = torch.tensor([0, 2, 1, 3, 4, 5, 6], device=device)
    assert (model(swapped) - model(pixels)[:, order]).abs().max() > 1e-3
    torch.nn.init.zeros_(model.embedding.positions)
    torch.testing.assert_close(model(swapped), model(pixels)[:, order], atol=1e-5, rtol=1e-4)


def test_gradients_reach_all_parameters(device: torch.device, model: Any) -> None:
    pixels = torch.randn(2, 3, 8, 12, device=device, requires_grad=True)
    model.classifier(model(pixels)[:, 0]).pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    assert pixels.grad is not None and (pixels.grad != 0).all()


def test_head_is_optional() -> None:
    assert Vit(CONFIG, output_heads=()).classifier is None
