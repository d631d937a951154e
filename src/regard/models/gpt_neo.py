"""GPT-Neo: a GPT-2 with local attention in some layers, without a scale of the attention scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.errors import InputError
from regard.models.family import Checkpoint, Family, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init

KINDS = ("global", "local")


@dataclass(frozen=True)
class GptNeoConfig:
    """GPT-Neo 125M by default. `attention_types` are those of the layers, repeated from the first one on."""

    family: str = "gpt-neo"
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 2048
    attention_types: str = "global local"
    window_size: int = 256  # tokens that a query of a local layer reads, itself included
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256

    def __post_init__(self) -> None:
        kinds = self.attention_types.split()
        if not kinds or not set(kinds) <= set(KINDS):
            raise InputError(f"attention_types are {self.attention_types[:60]!r}; expected global and local")


class GptNeo(CausalDecoder):
    """Called like GPT-2."""

    def __init__(self, config: GptNeoConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.from_model_config(config, norm_first=True, qkv_bias=False, scale=1.0, causal=True)
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.embedding_dropout,
        )
        kinds = config.attention_types.split()
        windows = {"global": None, "local": config.window_size - 1}
        layers = (
            Block(replace(layer, window=windows[kinds[number % len(kinds)]]))
            for number in range(config.num_hidden_layers)
        )
        self.decoder = Stack(layers, norm=layer.new_norm())
        normal_init(self)
        scaled_init(self.decoder.layers)


FAMILY = Family(
    name="gpt-neo",
    title="a GPT-Neo",
    year=2021,
    description="GPT-2 with local attention in every second layer",
    model_class=GptNeo,
    config_class=GptNeoConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(
        Checkpoint("EleutherAI/gpt-neo-125m", 125_198_592),
        Checkpoint("EleutherAI/gpt-neo-1.3B", 1_315_575_808, shape(2048, 24, 16)),
        Checkpoint("EleutherAI/gpt-neo-2.7B", 2_651_307_520, shape(2560, 32, 20)),
    ),
)
