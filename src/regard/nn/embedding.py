"""Embeddings of tokens and image patches; learned and sinusoidal positions, T5's relative position bias and ALiBi."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn.masks import Layout
from regard.nn.training import Dropout

Arrangement = Literal["interleaved", "halves"]


def sinusoids(positions: Tensor, width: int, *, arrangement: Arrangement = "interleaved") -> Tensor:
    """Return p(t)[2k] = sin(w_k t), p(t)[2k+1] = cos(w_k t) with w_k = 10000^(-2k/width), k from 0.

    "halves" puts all sines before all cosines: the same values, permuted.
    """
    if width % 2:
        raise ValueError(f"expected an even width for sinusoids, got {width}")
    check_choice("arrangement", arrangement, get_args(Arrangement))
    frequencies = torch.exp(torch.arange(0, width, 2, device=positions.device).double() * (-math.log(10000.0) / width))
    angles = positions[..., None] * frequencies
    if arrangement == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1).float()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


class SinusoidalPositions(nn.Module):
    """Sinusoids for any position, without parameters or a maximum length."""

    def __init__(self, width: int, *, arrangement: Arrangement = "interleaved") -> None:
        super().__init__()
        self.width, self.arrangement = width, arrangement

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width, arrangement=self.arrangement)


class LearnedPositions(nn.Embedding):
    """A learned vector per position. The first `offset` rows are unused (two in RoBERTa)."""

    def __init__(self, count: int, width: int, *, offset: int = 0) -> None:
        super().__init__(count + offset, width)
        self.count, self.offset = count, offset

    def forward(self, positions: Tensor) -> Tensor:
        return super().forward(positions + self.offset if self.offset else positions)


class RelativePositionBias(nn.Module):
    """T5's relative position bias: a learned scalar per head and distance bucket, added to the scores of every layer.

    Small distances have a bucket each; larger ones share buckets that grow logarithmically up to `max_distance`.
    """

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, causal: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the bias (1, H, T, S) of the last `queries` of `keys` tokens."""
        device = self.table.weight.device
        query = torch.arange(keys - queries, keys, device=device)
        distance = torch.arange(keys, device=device) - query[:, None]
        bias: Tensor = self.table(self.bucket(distance))
        return bias.permute(2, 0, 1)[None]

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of a signed distance (key minus query)."""
        if self.causal:
            buckets, side = self.buckets, torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        else:
            buckets = self.buckets // 2
            side = (distance > 0) * buckets
            distance = distance.abs()
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, far)


class AlibiBias(nn.Module):
    """ALiBi in both directions (Press et al. 2022): -slope * |distance| is added to the scores, with a slope per head.

    The slopes of n heads, a power of 2, are 2^(-8/n), 2^(-16/n), ...; other numbers take the rest from 2n heads.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        power = 1 << (heads.bit_length() - 1)
        exponents = [8 * (i + 1) / power for i in range(power)]
        exponents += [4 * (i + 1) / power for i in range(0, 2 * power, 2)][: heads - power]
        self.exponents = exponents
        # On the CPU even if the model is built without memory, because no file contains it.
        self.register_buffer("slopes", self._new_slopes("cpu"), persistent=False)

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the bias (1, H, T, S) of the last `queries` of `keys` tokens."""
        query = torch.arange(keys - queries, keys, device=self.slopes.device)
        distance = (torch.arange(keys, device=self.slopes.device) - query[:, None]).abs()
        return -self.slopes[None, :, None, None] * distance

    def _new_slopes(self, device: torch.device | str) -> Tensor:
        return torch.tensor([2.0**-exponent for exponent in self.exponents], device=device)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> AlibiBias:
        """Move to another device; slopes stay in float32 when a model is converted to another dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.slopes = self._new_slopes(self.slopes.device)
        return self


def lookup(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the vectors of ids; raise InputError that names ids outside the table.

    On a CPU the lookup itself raises, so valid ids cost nothing. On a GPU ids are not checked, which would require
    synchronization: the caller checks them, as a tokenizer that is opened for a vocabulary does.
    """
    try:
        vectors: Tensor = table(ids)
    except IndexError:
        invalid = sorted(set(ids[(ids < 0) | (ids >= table.num_embeddings)].tolist()))
        if not invalid:
            raise
        listed = ", ".join(map(str, invalid[:8])) + (f" and {len(invalid) - 8} more" if len(invalid) > 8 else "")
        raise InputError(
            f"token ids {listed} are beyond this model's vocabulary of {table.num_embeddings:,}; expected ids from 0 "
            f"to {table.num_embeddings - 1}, so use the tokenizer that belongs to the model"
        ) from None
    return vectors


class TextEmbedding(nn.Module):
    """The sum of token, position and segment embeddings, followed by the optional norm, dropout and projection.

    `positions` maps positions to vectors. `scaled` multiplies token vectors by sqrt(width) (the 2017 Transformer).
    `project` maps vectors of `width` to the width of the layers (ALBERT's factorized embeddings).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        positions: nn.Module | None = None,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        scaled: bool = False,
        project: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = positions
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.project = project
        self.scale = math.sqrt(width) if scaled else 1.0

    def forward(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, *, start: int | Tensor = 0
    ) -> Tensor:
        """Embed ids (B, T) or packed (N,). `segments` has the same shape, default 0; `start` tokens precede the input.

        Vectors (B, T, W), such as image frames, are accepted in place of ids.
        """
        x = reduce(add, self.parts(ids, layout, segments, start=start).values())
        if self.norm is not None:
            x = self.norm(x)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        result: Tensor = self.dropout(x)
        return result if self.project is None else self.project(result)

    @property
    def num_segments(self) -> int:
        """The number of segments that the model distinguishes; 0: it has no segment embeddings."""
        return 0 if self.segments is None else self.segments.num_embeddings

    def parts(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, *, start: int | Tensor = 0
    ) -> dict[str, Tensor]:
        """Return the vectors that are added up: those of tokens and, where there are such, segments and positions."""
        tokens = ids if ids.is_floating_point() else lookup(self.tokens, ids)
        parts = {"token": tokens if self.scale == 1.0 else tokens * self.scale}
        if self.segments is not None:
            parts["segment"] = self.segments.weight[:1] if segments is None else self.segments(segments)
        if self.positions is not None:
            self._check_length(layout.longest_sequence(ids) + (start if isinstance(start, int) else 1))
            parts["position"] = self.positions(layout.positions(ids, start)).to(tokens.dtype)
        return parts

    def _check_length(self, length: int) -> None:
        if isinstance(self.positions, LearnedPositions) and length > self.positions.count:
            raise ValueError(f"text of {length} tokens, but this model has {self.positions.count} positions: cut it")


class TiedEmbedding(TextEmbedding):
    """An embedding with the token vectors of another one; its positions and norm are its own."""

    def __init__(
        self,
        shared: TextEmbedding,
        *,
        positions: nn.Module | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        nn.Module.__init__(self)
        self._shared = (shared,)  # in a tuple, so that the vectors are parameters of that module only
        self.positions, self.segments, self.norm, self.project = positions, None, norm, None
        self.dropout, self.scale = Dropout(dropout), shared.scale

    @property
    def tokens(self) -> nn.Embedding:  # type: ignore[override]
        return self._shared[0].tokens


class PatchEmbedding(nn.Module):
    """Embeds an image as a sequence of patches after [CLS], with a learned vector per position.

    `distillation` adds DeiT's distillation token after [CLS]; `norm` follows the sum with the positions, as in CLIP.
    """

    def __init__(
        self,
        *,
        image: tuple[int, int],
        patch: tuple[int, int],
        channels: int,
        width: int,
        bias: bool = True,
        distillation: bool = False,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.image = image
        self.project = nn.Conv2d(channels, width, kernel_size=patch, stride=patch, bias=bias)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.distillation = nn.Parameter(torch.zeros(1, 1, width)) if distillation else None
        self.grid = image[0] // patch[0], image[1] // patch[1]
        self.positions = nn.Parameter(torch.zeros(1, self.num_special + self.grid[0] * self.grid[1], width))
        self.norm = norm
        self.dropout = Dropout(dropout)

    @property
    def num_special(self) -> int:
        """The number of tokens before the patches."""
        return 1 if self.distillation is None else 2

    def forward(self, pixels: Tensor, positions: Tensor | None = None) -> Tensor:
        """Map pixels (B, channels, height, width) to vectors (B, T, W) of the special tokens and the patches.

        The vectors of `tokens`, or some of them with their `positions` (B, T), are accepted in place of pixels.
        """
        x = self.tokens(pixels) if pixels.ndim == 4 else pixels
        x = x + (self.positions if positions is None else self.positions[0, positions])
        result: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return result

    def tokens(self, pixels: Tensor) -> Tensor:
        """The vectors of the special tokens and of each patch, row by row, without positions: (B, T, W)."""
        if tuple(pixels.shape[-2:]) != tuple(self.image):
            raise ValueError(f"expected images of {self.image} pixels, got {tuple(pixels.shape[-2:])}")
        patches = self.project(pixels).flatten(2).transpose(1, 2)
        special = [self.cls] if self.distillation is None else [self.cls, self.distillation]
        return torch.cat([*(token.expand(len(patches), 1, -1) for token in special), patches], dim=1)
