"""The modules that every model is built from. They work on tensors and do not depend on text, files or tasks.

Shapes, here and in `models`:

    B batch   T queries   S keys   H heads   D head width   W width   V vocabulary   N tokens of a packed batch
"""

from regard.nn.attention import (
    AdditiveScore,
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
from regard.nn.cache import DecoderState, KVCache, LayerCache, StackCache
from regard.nn.character_cnn import CharacterCNN, Highway
from regard.nn.context import Context
from regard.nn.embedding import PatchEmbedding, TextEmbedding
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.masks import Layout, Packed, Padded
from regard.nn.positions import LearnedPositions, RelativePositionBias, SinusoidalPositions, sinusoids
from regard.nn.recording import ablate_heads, record
from regard.nn.recurrent import Recurrent, StackedCell
from regard.nn.scalar_mix import ScalarMix
from regard.nn.stack import Stack
from regard.nn.tape import Edit, Site, Tape

__all__ = [
    "AdditiveScore",
    "Attention",
    "Block",
    "CharacterCNN",
    "Context",
    "DecoderState",
    "Edit",
    "EncoderDecoder",
    "FeedForward",
    "FusedProjection",
    "Highway",
    "KVCache",
    "LayerCache",
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
