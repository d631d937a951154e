"""The files of a GTE: keys of config.json, also those of its authors' code, and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of
from regard.checkpoints.formats import bert, llama, nomic_bert
from regard.errors import InputError
from regard.models.gte import GteConfig

LAYER: Table = {
    "attention.project.{p}": "attention.qkv_proj.{p}",
    "attention.output.{p}": "attention.o_proj.{p}",
    "attention_residual.norm.{p}": "attn_ln.{p}",
    "ffn.inner.weight": "mlp.up_gate_proj.weight",
    "ffn.outer.{p}": "mlp.down_proj.{p}",
    "ffn_residual.norm.{p}": "mlp_ln.{p}",
}


def swap_halves(name: str, tensor: Tensor) -> Tensor:
    """Exchange input and gate, which the files store in the other order."""
    return torch.cat(tensor.chunk(2)[::-1]) if name.endswith("ffn.inner.weight") else tensor


NAMES = TensorNames(
    "gte.",
    {
        "embedding.tokens.weight": "embeddings.word_embeddings.weight",
        "embedding.norm.{p}": "embeddings.LayerNorm.{p}",
        **bert.SEGMENTS,
    },
    {("encoder.layers", "encoder.layer"): LAYER},
    {"pooler": bert.POOLER, "mlm_head": bert.mlm_head("lm_head.dense", "lm_head.norm", "lm_head.decoder.bias")},
    copies={"lm_head.decoder.weight": bert.TOKENS},
    buffers=r"(embeddings\.(position_ids|rotary_emb\.inv_freq)|rotary_emb\.inv_freq)",
    decode=swap_halves,
    encode=swap_halves,
    old_prefixes=("new.",),
)
OLD = "new"  # the model_type of the authors' code


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    nomic_bert.check_sizes(fields, document)
    scaling = document.get("rope_scaling")
    if document.get("model_type") != OLD or not isinstance(scaling, dict) or scaling.get("type") != "ntk":
        llama.read_rope(fields, document)
    else:
        if (
            set(scaling) != {"type", "factor"}
            or not isinstance(scaling["factor"], int | float)
            or scaling["factor"] < 1
        ):
            raise InputError(f"rope_scaling is {str(scaling)[:200]}; expected type ntk and a factor of at least 1")
        theta, factor = document.get("rope_theta", 10000.0), float(scaling["factor"])
        width, heads = fields["hidden_size"], fields["num_attention_heads"]
        if not all(isinstance(size, int | float) and size > 0 for size in (theta, width, heads)):
            raise InputError("rope_theta, hidden_size and num_attention_heads must be numbers above 0")
        # The code multiplies the base by the factor and divides all frequencies by factor^(2 / head width).
        fields |= {"rope_type": "linear", "rope_theta": float(theta) * factor}  # type: ignore[arg-type]
        fields["rope_factor"] = factor ** (2 * heads / width)
    if document.get("model_type") == OLD:
        fields.setdefault("rope_theta", 10000.0)
        if document.get("hidden_act", "gelu") != "gelu":
            raise InputError(f"hidden_act is {str(document['hidden_act'])[:60]!r}; only 'gelu' is supported")


FORMAT = FileFormat(
    {name: key for name, key in keys_of(GteConfig, **bert.RENAMED).items() if name in nomic_bert.KEYS},
    NAMES,
    {
        "tie_word_embeddings": True,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
        **dict.fromkeys(("logn_attention_scale", "logn_attention_clip1"), False),
    },
    read=read,
    write=llama.write_rope,
    code=r"(Alibaba-NLP/new-impl--)?(configuration|modeling)\.New\w+",
    code_keys=("rope_theta", "rope_scaling", "unpad_inputs", "use_memory_efficient_attention"),
    old_model_types=(OLD,),
    old_class_prefixes=("New",),
    class_prefix="Gte",
    task_heads={"SequenceClassification": {"pool.0": "gte.pooler.dense", "output": "classifier"}},
)
