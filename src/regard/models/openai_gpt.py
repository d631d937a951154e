"""The first GPT: a post-norm causal Transformer decoder without a final norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.models.family import Checkpoint, Family, FileFormat, TensorNames
from regard.models.gpt2 import NAMES as GPT2
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init


@dataclass(frozen=True)
class OpenAIGptConfig:
    """The published model by default; feed-forward layers have four times the width."""

    family: str = "openai-gpt"
    vocab_size: int = 40478
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class OpenAIGpt(CausalDecoder):
    """Called like GPT-2."""

    def __init__(self, config: OpenAIGptConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.of(config, causal=True)
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
        )
        self.decoder = Stack(Block(layer) for _ in range(config.num_hidden_layers))
        normal_init(self)


NAMES = TensorNames(
    GPT2.prefix,
    {"embedding.tokens.weight": "tokens_embed.weight", "embedding.positions.weight": "positions_embed.weight"},
    GPT2.layers,
    copies={"lm_head.weight": "{base}tokens_embed.weight"},
    buffers=r"(transformer\.)?(position_ids|h\.\d+\.attn\.bias)",
    transposed=GPT2.transposed,
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields["intermediate_size"] = 4 * width if isinstance(width, int) else 0
    if fields.get("hidden_act") == "gelu":  # in this family's files, the approximation by tanh
        fields["hidden_act"] = "gelu_new"


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embd_pdrop"] = fields["dropout"]
    document["afn"] = {"gelu_new": "gelu"}.get(document["afn"], document["afn"])


FAMILY = Family(
    name="openai-gpt",
    title="a GPT",
    year=2018,
    description="the first GPT: post-norm decoder that predicts the next token",
    model_class=OpenAIGpt,
    config_class=OpenAIGptConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(Checkpoint("openai-community/openai-gpt", 116_534_784),),
    file_format=FileFormat(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "n_positions",
            "hidden_act": "afn",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "bos_token_id": "bos_token_id",
            "eos_token_id": "eos_token_id",
        },
        lambda output_heads: "OpenAIGPTLMHeadModel",
        lambda config: NAMES,
        {"tie_word_embeddings": True},
        read=read,
        write=write,
        class_prefix="OpenAIGPT",
        task_heads={"SequenceClassification": {"output": "score"}},
    ),
)
