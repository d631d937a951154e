"""Consecutive decodings can share packed matrices and give the same output."""

from __future__ import annotations

import pytest
import torch

from regard.inference.generation.beam_search import greedy_search
from regard.inference.generation.decoder import reuse_packed_weights
from regard.models import Gpt, GptConfig
from regard.nn.fast.packed_linear import supports_packing

ROWS, TOKENS = 4, 20


@pytest.fixture(scope="module")
def model() -> Gpt:
    torch.manual_seed(0)
    return Gpt(
        GptConfig(
            vocab_size=300,
            hidden_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=64,
        )
    ).eval()


def generate(model: Gpt) -> list[tuple[int, ...]]:
    prompts = torch.arange(ROWS * 3).view(ROWS, 3)
    return [one.ids for one in greedy_search(model, prompts, end=None, max_new_tokens=TOKENS)]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the sizes of matrices when they are packed."""
    if not supports_packing():
        pytest.skip("this torch has no packed linear layers")
    sizes: list[int] = []
    real = torch.ops.mkldnn._reorder_linear_weight

    def reorder(weight: torch.Tensor, rows: int) -> torch.Tensor:
        sizes.append(weight.numel())
        found: torch.Tensor = real(weight, rows)
        return found

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", reorder)
    return sizes


def test_each_decoding_packs_its_own_matrices(model: Gpt, packed: list[int]) -> None:
    first = generate(model)
    once = len(packed)
    assert once > 0
    assert generate(model) == first
    assert len(packed) == 2 * once


def test_matrices_are_packed_once_inside_the_context_manager(model: Gpt, packed: list[int]) -> None:
    expected = generate(model)
    packed.clear()
    with reuse_packed_weights():
        assert generate(model) == expected
        once = len(packed)
        with reuse_packed_weights():
            assert generate(model) == expected
        assert generate(model) == expected
    assert len(packed) == once > 0
    generate(model)
    assert len(packed) == 2 * once  # afterwards each decoding packs its own matrices again
