"""The parts every model is made of: tensors in, tensors out; nothing of text, files or tasks.

Shapes, here and in `models`:

    B batch   T queries   S keys   H heads   D head width   W width   V vocabulary   N tokens of a packed batch
"""

from regard.nn.attention import (
    Additive,
    Attention,
    Fused,
    LuongDotAttention,
    Separate,
    bahdanau,
    luong_dot,
    luong_general,
    mix,
)
from regard.nn.block import Block, FeedForward, Layer, Residual
from regard.nn.cache import Cache, LayerCache, Pairs, State
from regard.nn.character_cnn import CharacterCNN, Highway
from regard.nn.embedding import PatchEmbedding, TextEmbedding
from regard.nn.masks import Layout, Packed, Padded
from regard.nn.positions import Learned, RelativeBias, Sinusoidal, sinusoids
from regard.nn.recording import knock_out, record
from regard.nn.recurrent import Recurrent, StackedCell
from regard.nn.scalar_mix import ScalarMix
from regard.nn.stack import Stack
from regard.nn.tape import Edit, Site, Tape

__all__ = [
    "Additive",
    "Attention",
    "Block",
    "Cache",
    "CharacterCNN",
    "Edit",
    "FeedForward",
    "Fused",
    "Highway",
    "Layer",
    "LayerCache",
    "Layout",
    "Learned",
    "LuongDotAttention",
    "Packed",
    "Padded",
    "Pairs",
    "PatchEmbedding",
    "Recurrent",
    "RelativeBias",
    "Residual",
    "ScalarMix",
    "Separate",
    "Sinusoidal",
    "Site",
    "Stack",
    "StackedCell",
    "State",
    "Tape",
    "TextEmbedding",
    "bahdanau",
    "knock_out",
    "luong_dot",
    "luong_general",
    "mix",
    "record",
    "sinusoids",
]
