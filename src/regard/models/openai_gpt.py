"""The first GPT: a post-norm causal Transformer decoder without a final norm."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import gpt2
from regard.models.family import Checkpoint
from regard.nn.block import LayerConfig


@dataclass(frozen=True)
class OpenAIGptConfig(gpt2.GptConfig):
    """The published model by default; feed-forward layers have four times the width."""

    family: str = "openai-gpt"
    vocab_size: int = 40478
    max_position_embeddings: int = 512

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), norm_first=False)


class OpenAIGpt(gpt2.Gpt):
    """Called like GPT-2."""


FAMILY = replace(
    gpt2.FAMILY,
    name="openai-gpt",
    title="a GPT",
    year=2018,
    description="the first GPT: post-norm decoder that predicts the next token",
    model_class=OpenAIGpt,
    config_class=OpenAIGptConfig,
    checkpoints=(Checkpoint("openai-community/openai-gpt", 116_534_784),),
    pretraining=None,
)
