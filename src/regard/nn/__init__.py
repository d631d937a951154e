"""The modules that every model is built from. They work on tensors and do not depend on text, files or tasks.

Shapes, here and in `models`:

    B batch   T queries   S keys   H heads   D head width   W width   V vocabulary   N tokens of a packed batch
"""

from regard.nn.attention import (
    Attention,
    FusedProjection,
    LuongDotAttention,
    SeparateProjections,
    attention_weights,
    bahdanau,
    luong_dot,
    luong_general,
)
from regard.nn.block import Block, FeedForward, LayerConfig, Residual
from regard.nn.cache import DecoderState, KVCache, StackCache
from regard.nn.embedding import (
    LearnedPositions,
    PatchEmbedding,
    RelativePositionBias,
    SinusoidalPositions,
    TextEmbedding,
    sinusoids,
)
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.masks import Context, Layout, Packed, Padded
from regard.nn.recording import Site, Tape, ablate_heads, record
from regard.nn.recurrent import Recurrent, StackedCell
from regard.nn.stack import ScalarMix, Stack

__all__ = [
    "Attention",
    "Block",
    "Context",
    "DecoderState",
    "EncoderDecoder",
    "FeedForward",
    "FusedProjection",
    "KVCache",
    "LayerConfig",
    "Layout",
    "LearnedPositions",
    "LuongDotAttention",
    "Packed",
    "Padded",
    "PatchEmbedding",
    "Recurrent",
    "RelativePositionBias",
    "Residual",
    "ScalarMix",
    "SeparateProjections",
    "SinusoidalPositions",
    "Site",
    "Stack",
    "StackCache",
    "StackedCell",
    "Tape",
    "TextEmbedding",
    "ablate_heads",
    "attention_weights",
    "bahdanau",
    "luong_dot",
    "luong_general",
    "record",
    "sinusoids",
]
