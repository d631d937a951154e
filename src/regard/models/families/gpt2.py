"""GPT-2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regard.models.families.bert import LARGE
from regard.models.family import Checkpoint, Family, FileFormat, TensorNames

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
            "attended.norm.{p}": "ln_1.{p}",
            "ffn.inner.{p}": "mlp.c_fc.{p}",
            "ffn.outer.{p}": "mlp.c_proj.{p}",
            "fed.norm.{p}": "ln_2.{p}",
        }
    },
    copies={"lm_head.weight": "{base}wte.weight"},
    buffers=r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",
    transposed=r"decoder\.layers\.\d+\.(attention|ffn)\..*weight",
)


def tensor_names(config: Any) -> TensorNames:
    return NAMES


def architecture(heads: Collection[str]) -> str:
    return "GPT2LMHeadModel"


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields.setdefault("intermediate_size", 4 * width if isinstance(width, int) else 0)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embd_pdrop"] = fields["dropout"]


def _shape(width: int, layers: int, heads: int) -> dict[str, object]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


FAMILY = Family(
    name="gpt2",
    title="a GPT-2",
    year=2019,
    description="decoder that predicts the next token",
    model="regard.models.gpt:Gpt",
    config="regard.models.gpt:GptConfig",
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    checkpoints=(
        Checkpoint("openai-community/gpt2", 124_439_808),
        Checkpoint("openai-community/gpt2-medium", 354_823_168, LARGE),
        Checkpoint("openai-community/gpt2-large", 774_030_080, _shape(1280, 36, 20)),
        Checkpoint("openai-community/gpt2-xl", 1_557_611_200, _shape(1600, 48, 25)),
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
        architecture,
        tensor_names,
        {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "tie_word_embeddings": True,
            "add_cross_attention": False,
        },
        optional=("intermediate_size",),
        read=read,
        write=write,
    ),
    pretraining="gpt",
)
