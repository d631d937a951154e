"""GPT-Neo: a GPT-2 with local attention in some layers, without a scale of the attention scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.errors import InputError
from regard.models import gpt2
from regard.models.family import Checkpoint, shape
from regard.nn.block import LayerConfig
from regard.nn.training import Dropout

KINDS = ("global", "local")


@dataclass(frozen=True)
class GptNeoConfig(gpt2.GptConfig):
    """GPT-Neo 125M by default. `attention_types` are those of the layers, repeated from the first one on."""

    family: str = "gpt-neo"
    max_position_embeddings: int = 2048
    attention_types: str = "global local"
    window_size: int = 256  # tokens that a query of a local layer reads, itself included
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256

    def __post_init__(self) -> None:
        kinds = self.attention_types.split()
        if not kinds or not set(kinds) <= set(KINDS):
            raise InputError(f"attention_types are {self.attention_types[:60]!r}; expected global and local")

    def layer(self, number: int) -> LayerConfig:
        kinds = self.attention_types.split()
        window = self.window_size - 1 if kinds[number % len(kinds)] == "local" else None
        return replace(super().layer(number), qkv_bias=False, scale=1.0, window=window)


class GptNeo(gpt2.Gpt):
    """Called like GPT-2."""

    def __init__(self, config: GptNeoConfig) -> None:
        super().__init__(config)
        self.embedding.dropout = Dropout(config.embedding_dropout)


FAMILY = replace(
    gpt2.FAMILY,
    name="gpt-neo",
    title="a GPT-Neo",
    year=2021,
    description="GPT-2 with local attention in every second layer",
    model_class=GptNeo,
    config_class=GptNeoConfig,
    checkpoints=(
        Checkpoint("EleutherAI/gpt-neo-125m", 125_198_592),
        Checkpoint("EleutherAI/gpt-neo-1.3B", 1_315_575_808, shape(2048, 24, 16)),
        Checkpoint("EleutherAI/gpt-neo-2.7B", 2_651_307_520, shape(2560, 32, 20)),
    ),
    pretraining=None,
)
