"""GPT-2: a causal Transformer decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.models.bert import config_fields
from regard.models.family import Checkpoint, Family, FileFormat, PretrainingRecipe, TensorNames, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class GptConfig:
    """GPT-2 small by default."""

    family: str = "gpt2"
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 1024
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    bos_token_id: int | None = None  # the ids that begin and end a text, if the vocabulary has them
    eos_token_id: int | None = None


class Gpt(CausalDecoder):
    """A pre-norm decoder with learned positions; its output layer is tied to the embedding."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.of(config, norm_first=True, causal=True)
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
        )
        self.decoder = Stack((Block(layer) for _ in range(config.num_hidden_layers)), norm=layer.new_norm())
        normal_init(self)
        scaled_init(self.decoder.layers)


NAMES = TensorNames(
    "transformer.",
    {
        "embedding.tokens.weight": "wte.weight",
        "embedding.positions.weight": "wpe.weight",
        "decoder.norm.{p}": "ln_f.{p}",
    },
    {
        ("decoder.layers", "h"): {
            "attention.project.{p}": "attn.c_attn.{p}",
            "attention.output.{p}": "attn.c_proj.{p}",
            "attention_residual.norm.{p}": "ln_1.{p}",
            "ffn.inner.{p}": "mlp.c_fc.{p}",
            "ffn.outer.{p}": "mlp.c_proj.{p}",
            "ffn_residual.norm.{p}": "ln_2.{p}",
        }
    },
    copies={"lm_head.weight": "{base}wte.weight"},
    buffers=r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",
    transposed=r"decoder\.layers\.\d+\.(attention|ffn)\..*weight",
)

GGUF_NAMES = TensorNames(
    base={
        "embedding.tokens.weight": "token_embd.weight",
        "embedding.positions.weight": "position_embd.weight",
        "decoder.norm.{p}": "output_norm.{p}",
    },
    layers={
        ("decoder.layers", "blk"): {
            "attention.project.{p}": "attn_qkv.{p}",
            "attention.output.{p}": "attn_output.{p}",
            "attention_residual.norm.{p}": "attn_norm.{p}",
            "ffn.inner.{p}": "ffn_up.{p}",
            "ffn.outer.{p}": "ffn_down.{p}",
            "ffn_residual.norm.{p}": "ffn_norm.{p}",
        }
    },
    copies={"output.weight": "token_embd.weight"},
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields.setdefault("intermediate_size", 4 * width if isinstance(width, int) else 0)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embd_pdrop"] = fields["dropout"]


FAMILY = Family(
    name="gpt2",
    title="a GPT-2",
    year=2019,
    description="decoder that predicts the next token",
    model_class=Gpt,
    config_class=GptConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(
        Checkpoint("openai-community/gpt2", 124_439_808),
        Checkpoint("openai-community/gpt2-medium", 354_823_168, shape(1024, 24, 16)),
        Checkpoint("openai-community/gpt2-large", 774_030_080, shape(1280, 36, 20)),
        Checkpoint("openai-community/gpt2-xl", 1_557_611_200, shape(1600, 48, 25)),
        Checkpoint("distilbert/distilgpt2", 81_912_576, {"num_hidden_layers": 6}),
    ),
    file_format=FileFormat(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "activation_function",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "bos_token_id": "bos_token_id",
            "eos_token_id": "eos_token_id",
        },
        lambda output_heads: "GPT2LMHeadModel",
        lambda config: NAMES,
        {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "tie_word_embeddings": True,
            "add_cross_attention": False,
        },
        optional=("intermediate_size",),
        read=read,
        write=write,
        class_prefix="GPT2",
        task_heads={"SequenceClassification": {"output": "score"}},
    ),
    gguf={
        "gpt2": FileFormat(
            {
                "vocab_size": "vocab_size",
                "hidden_size": "embedding_length",
                "num_hidden_layers": "block_count",
                "num_attention_heads": "attention.head_count",
                "intermediate_size": "feed_forward_length",
                "max_position_embeddings": "context_length",
                "layer_norm_eps": "attention.layer_norm_epsilon",
                "bos_token_id": "bos_token_id",
                "eos_token_id": "eos_token_id",
            },
            lambda output_heads: "gpt2",
            lambda config: GGUF_NAMES,
        )
    },
    pretraining=PretrainingRecipe(
        name="gpt",
        objective="causal-lm",
        config_fields=config_fields,
        token_ids={"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id"},
        defaults={
            "model": {"activation": "gelu-tanh"},
            "vocabulary": {"kind": "bpe", "lowercase": False},
            "objective": {"sentence_pairs": "none"},
        },
    ),
)
