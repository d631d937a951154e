"""Llama: a causal decoder with rotary positions, grouped queries, RMS norms and gated layers.

Mistral, Qwen2, Qwen3 and Phi-3 differ from it in a few fields; each has a module with its own declaration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from regard.errors import InputError
from regard.models.family import Checkpoint, Family, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import TextEmbedding
from regard.nn.rotary import RopeConfig
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class LlamaConfig(RopeConfig):
    """Llama 2 7B by default.

    The layers after the first `max_window_layers` attend to the last `sliding_window` tokens, including their own.
    """

    causal: ClassVar[bool] = True
    family: str = "llama"
    vocab_size: int = 32000
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # None: as many as num_attention_heads
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    intermediate_size: int = 11008
    max_position_embeddings: int = 2048
    hidden_act: str = "silu"
    layer_norm_eps: float = 1e-6
    norm: Literal["rms", "offset-rms", "layer"] = "rms"
    scale_embedding: bool = False
    attention_dropout: float = 0.0
    attention_bias: bool = False  # of all linear layers of the attention
    qkv_bias: bool = False  # of queries, keys and values only
    mlp_bias: bool = False
    query_key_norm: bool = False
    sliding_window: int | None = None
    max_window_layers: int | None = None  # None: every layer has the window
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    other_eos_token_id: tuple[int, ...] = ()  # more tokens that end a text, as in Llama 3

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def layer(self, number: int) -> LayerConfig:
        """Return the settings of a layer, counted from 0."""
        window = self.sliding_window if number >= (self.max_window_layers or 0) else None
        return LayerConfig.from_model_config(
            self,
            norm_first=True,
            gated=True,
            bias=self.mlp_bias,
            qkv_bias=self.attention_bias or self.qkv_bias,
            attention_output_bias=self.attention_bias,
            causal=self.causal,
            window=None if window is None else window - 1,
        )

    def blocks(self) -> list[Any]:
        """Return new layers, which share the module that encodes positions."""
        rotary = self.new_rotary(self.head_width, self.max_position_embeddings)
        layers = [self.layer(number) for number in range(self.num_hidden_layers)]
        return [Block(layer, positions=rotary, ffn=self.new_ffn(layer, i)) for i, layer in enumerate(layers)]

    def new_ffn(self, layer: LayerConfig, number: int) -> nn.Module | None:
        """Return the feed-forward network of a layer; None: the usual one."""
        return None

    @property
    def embedding_dropout(self) -> float:
        return 0.0


class Llama(CausalDecoder):
    """A pre-norm decoder; the head "output" is its output layer unless that is tied to the embedding."""

    def __init__(self, config: LlamaConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = TextEmbedding(
            config.vocab_size, config.hidden_size, scaled=config.scale_embedding, dropout=config.embedding_dropout
        )
        self.decoder = Stack(config.blocks(), norm=config.layer(0).new_norm())
        untied = not config.tie_word_embeddings and (output_heads is None or "output" in output_heads)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False) if untied else None
        normal_init(self)
        scaled_init(self.decoder.layers)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, W) of the output layer."""
        if self.output is not None:
            return self.output.weight
        if self.config.tie_word_embeddings:
            return self.embedding.tokens.weight
        raise InputError("this checkpoint has no output layer (lm_head.weight), so it cannot predict tokens")


LLAMA3 = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_type": "llama3",
    "rope_original_positions": 8192,
    "layer_norm_eps": 1e-5,
    "num_key_value_heads": 8,
}
SMOL = {"vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0, "tie_word_embeddings": True}

FAMILY = Family(
    name="llama",
    title="a Llama",
    year=2023,
    description="decoder with rotary positions and grouped queries; also SmolLM2 and TinyLlama",
    model_class=Llama,
    config_class=LlamaConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    output_heads=("output",),
    checkpoints=(
        Checkpoint(
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            134_515_008,
            shape(576, 30, 9, 1536, num_key_value_heads=3, **SMOL),
            (),
        ),
        Checkpoint(
            "HuggingFaceTB/SmolLM2-360M-Instruct",
            361_821_120,
            shape(960, 32, 15, 2560, num_key_value_heads=5, **SMOL),
            (),
        ),
        Checkpoint("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, shape(2048, 24, 32, 8192, **SMOL), ()),
        Checkpoint(
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            1_100_048_384,
            shape(2048, 22, 32, 5632, num_key_value_heads=4, layer_norm_eps=1e-5),
            ("output",),
        ),
        Checkpoint("meta-llama/Llama-2-7b-hf", 6_738_415_616, {"max_position_embeddings": 4096}, ("output",)),
        Checkpoint(
            "meta-llama/Llama-3.1-8B-Instruct",
            8_030_261_248,
            {**LLAMA3, "rope_factor": 8.0, **shape(4096, 32, 32, 14336)},
            ("output",),
        ),
        Checkpoint(
            "meta-llama/Llama-3.2-1B-Instruct",
            1_235_814_400,
            {**LLAMA3, "rope_factor": 32.0, "tie_word_embeddings": True, **shape(2048, 16, 32, 8192, head_dim=64)},
            (),
        ),
    ),
)
