"""Rotary positions: their formula, scaling as in transformers, dtypes and devices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from regard.errors import InputError
from regard.nn.rotary import RopeScaling, Rotary

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256},
}
FIELDS = {"low_freq_factor": "low", "high_freq_factor": "high", "original_max_position_embeddings": "original"}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", [8, 4])
def test_rotation_follows_the_formula(device: torch.device, interleaved: bool, width: int) -> None:
    rotary = Rotary(width, theta=100.0, interleaved=interleaved).to(device)
    x, positions = torch.randn(3, 2, 8, device=device), torch.tensor([0, 5, 9], device=device)
    rotated, _ = rotary(x, x, positions)
    for token, position in enumerate(positions.tolist()):
        for k in range(width // 2):
            angle = position * 100.0 ** (-2 * k / width)
            first, second = (2 * k, 2 * k + 1) if interleaved else (k, k + width // 2)
            a, b = x[token, :, first], x[token, :, second]
            expected = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
            torch.testing.assert_close(rotated[token, :, first], expected[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(rotated[token, :, second], expected[1], atol=1e-5, rtol=1e-5)
    assert torch.equal(rotated[..., width:], x[..., width:])


def test_scores_depend_only_on_distances(device: torch.device) -> None:
    rotary = Rotary(8).to(device)
    query, key = torch.randn(2, 6, 2, 8, device=device)
    scores = []
    for start in (0, 700):
        q, k = rotary(query, key, torch.arange(6, device=device) + start)
        scores.append(torch.einsum("thd,shd->hts", q, k))
    torch.testing.assert_close(*scores, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", SCALINGS)
def test_scaling_equals_transformers(kind: str) -> None:
    parameters = {"rope_type": kind, "rope_theta": 5000.0, **SCALINGS[kind]}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=1024, rope_parameters=parameters
    )
    theirs, magnitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    scaling = RopeScaling(kind, **{FIELDS.get(key, key): value for key, value in SCALINGS[kind].items()})  # type: ignore[arg-type]
    rotary = Rotary(32, theta=5000.0, scaling=scaling)
    torch.testing.assert_close(rotary.frequencies, theirs, atol=0, rtol=1e-6)
    assert scaling.magnitude == pytest.approx(magnitude)
    cos, _ = rotary.angles(torch.tensor([3]))
    torch.testing.assert_close(cos[0, 0, :16], torch.cos(3 * theirs) * magnitude, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(rotary.frequencies, Rotary(32, theta=5000.0).frequencies)


def test_frequencies_stay_in_float32_and_exist_without_a_file(device: torch.device) -> None:
    with torch.device("meta"):
        rotary = Rotary(8)
    expected = Rotary(8).frequencies
    half = rotary.to(device).bfloat16()
    assert half.frequencies.dtype == torch.float32 and torch.equal(half.frequencies.cpu(), expected)
    assert not half.state_dict()
    x = torch.randn(3, 2, 8, device=device, dtype=torch.bfloat16)
    rotated, _ = half(x, x, torch.arange(3, device=device))
    assert rotated.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rotary(7),
        lambda: Rotary(8, theta=0.5),
        lambda: RopeScaling("dynamic", 2.0),  # type: ignore[arg-type]
        lambda: RopeScaling("linear", 0.0),
        lambda: RopeScaling("llama3", 8.0),
        lambda: RopeScaling("llama3", 8.0, 64, low=4.0, high=4.0),
    ],
)
def test_unsupported_settings_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()
