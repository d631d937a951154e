"""Stacks of equal layers for tests."""

from __future__ import annotations

from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import RelativePositionBias
from regard.nn.stack import Stack


def stacked(
    layer: LayerConfig, depth: int, *, final_norm: bool = False, relative: RelativePositionBias | None = None
) -> Stack:
    norm = layer.new_norm() if final_norm else None
    return Stack((Block(layer) for _ in range(depth)), norm=norm, relative=relative)
