"""Rotary positions: queries and keys are rotated by angles that grow with the position (Su et al. 2021).

A score then depends only on the distance of query and key. `RopeScaling` changes the frequencies of a trained model for
longer texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice

RopeType = Literal["linear", "llama3", "yarn"]


@dataclass(frozen=True)
class RopeScaling:
    """How frequencies change for texts that are `factor` times as long as those of the training.

    "linear" divides all of them. "llama3" and "yarn" divide the slow ones only, with a transition in between: llama3
    from `low` to `high` turns within the `original` number of positions, yarn from `beta_slow` to `beta_fast` turns.
    """

    type: RopeType
    factor: float
    original: int = 0
    low: float = 1.0
    high: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None  # yarn: of queries and keys; None: 0.1 ln(factor) + 1

    def __post_init__(self) -> None:
        check_choice("rope_type", self.type, get_args(RopeType))
        if self.factor <= 0:
            raise InputError(f"the factor of rotary positions is {self.factor}; it must be above 0")
        if self.type != "linear" and self.original < 1:
            raise InputError(f"rotary positions of type {self.type} need original_max_position_embeddings above 0")
        if self.type == "llama3" and not self.low < self.high:
            raise InputError(f"low_freq_factor {self.low} must be below high_freq_factor {self.high}")

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:
        """Return the scaled frequencies, in radians per position."""
        slow = frequencies / self.factor
        if self.type == "linear":
            return slow
        if self.type == "llama3":
            turns = self.original / (2 * math.pi / frequencies)
            fast_share = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
            return (1 - fast_share) * slow + fast_share * frequencies
        width = 2 * len(frequencies)

        def dimension(turns: float) -> float:
            """Return the index of the frequency with so many turns within the original positions."""
            return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        first = max(math.floor(dimension(self.beta_fast)), 0)
        last = min(math.ceil(dimension(self.beta_slow)), width - 1)
        index = torch.arange(len(frequencies), dtype=torch.float32, device=frequencies.device)
        slow_share = ((index - first) / max(last - first, 0.001)).clamp(0, 1)
        return slow_share * slow + (1 - slow_share) * frequencies

    @property
    def magnitude(self) -> float:
        """The factor of rotated queries and keys."""
        if self.type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0


@dataclass(frozen=True)
class RopeConfig:
    """The fields of a model's configuration that describe its rotary positions, as `rope_parameters` does in a file."""

    rope_theta: float = 10000.0
    partial_rotary_factor: float = 1.0  # the share of each head that is rotated
    rope_type: Literal["default", "linear", "llama3", "yarn"] = "default"
    rope_factor: float = 1.0
    rope_original_positions: int | None = None  # None: max_position_embeddings
    rope_low_freq_factor: float = 1.0
    rope_high_freq_factor: float = 4.0
    rope_beta_fast: float = 32.0
    rope_beta_slow: float = 1.0
    rope_attention_factor: float | None = None

    def new_rotary(self, head_width: int, positions: int) -> Rotary:
        """Return the module that encodes positions in heads; `positions` is max_position_embeddings."""
        scaling = None
        if self.rope_type != "default":
            scaling = RopeScaling(
                self.rope_type,
                self.rope_factor,
                original=self.rope_original_positions or positions,
                low=self.rope_low_freq_factor,
                high=self.rope_high_freq_factor,
                beta_fast=self.rope_beta_fast,
                beta_slow=self.rope_beta_slow,
                attention_factor=self.rope_attention_factor,
            )
        return Rotary(int(head_width * self.partial_rotary_factor), theta=self.rope_theta, scaling=scaling)


class Rotary(nn.Module):
    """Rotates pairs of the first `width` values of each head; the others stay as they are.

    A pair is values k and k + width/2, as in Llama, or, if `interleaved`, values 2k and 2k + 1, as in GPT-J. Angles are
    computed in float32 whatever the dtype of the model.
    """

    frequencies: Tensor

    def __init__(
        self,
        width: int,
        *,
        theta: float = 10000.0,
        interleaved: bool = False,
        scaling: RopeScaling | None = None,
    ) -> None:
        super().__init__()
        if width < 2 or width % 2:
            raise InputError(f"rotary positions need an even number of values per head, got {width}")
        if theta <= 1:
            raise InputError(f"rope_theta is {theta}; it must be above 1")
        self.width, self.theta, self.interleaved, self.scaling = width, theta, interleaved, scaling
        # On the CPU even if the model is built without memory, because no file contains it.
        self.register_buffer("frequencies", self._new_frequencies("cpu"), persistent=False)

    def forward(self, query: Tensor, key: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys (..., H, D) at positions (...)."""
        cos, sin = self.angles(position_ids)
        return self.rotate(query, cos, sin), self.rotate(key, cos, sin)

    def angles(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors (..., 1, width) of each value and of the other one of its pair, for all heads."""
        angles = (position_ids[..., None].float() * self.frequencies).unsqueeze(-2)
        size = 1.0 if self.scaling is None else self.scaling.magnitude
        cos, sin = (angles.cos(), angles.sin()) if size == 1.0 else (angles.cos() * size, angles.sin() * size)
        if self.interleaved:
            return cos.repeat_interleave(2, dim=-1), torch.stack([-sin, sin], dim=-1).flatten(-2)
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the pairs of x (..., H, D)."""
        turned, rest = (x, None) if x.shape[-1] == self.width else (x[..., : self.width], x[..., self.width :])
        if self.interleaved:
            other = torch.unflatten(turned, -1, (-1, 2)).flip(-1).flatten(-2)
        else:
            other = turned.roll(self.width // 2, dims=-1)
        pairs = (turned * cos + other * sin).to(x.dtype)
        return pairs if rest is None else torch.cat([pairs, rest], dim=-1)

    def _new_frequencies(self, device: torch.device | str) -> Tensor:
        exponents = torch.arange(0, self.width, 2, device=device).float() / self.width
        frequencies: Tensor = 1.0 / self.theta**exponents
        return frequencies if self.scaling is None else self.scaling.scale(frequencies, self.theta)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Rotary:
        """Move to another device; frequencies stay in float32 when a model is converted to another dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.frequencies = self._new_frequencies(self.frequencies.device)
        return self
