"""The files of a GPT-NeoX: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of
from regard.checkpoints.formats import llama
from regard.models.gpt_neox import GptNeoXConfig

SHARED: Table = {
    "attention.project.{p}": "attention.query_key_value.{p}",
    "attention.output.{p}": "attention.dense.{p}",
    "ffn.inner.{p}": "mlp.dense_h_to_4h.{p}",
    "ffn.outer.{p}": "mlp.dense_4h_to_h.{p}",
}
PARALLEL: Table = {**SHARED, "norm.{p}": "input_layernorm.{p}", "ffn_norm.{p}": "post_attention_layernorm.{p}"}
SEQUENTIAL: Table = {
    **SHARED,
    "attention_residual.norm.{p}": "input_layernorm.{p}",
    "ffn_residual.norm.{p}": "post_attention_layernorm.{p}",
}


def regroup(outer: int, inner: int, name: str, tensor: Tensor) -> Tensor:
    """Reorder the rows of the projection: the files store queries, keys and values of one head after another."""
    if ".attention.project." not in name:
        return tensor
    parts = tensor.view(outer, inner, -1, *tensor.shape[1:])
    return parts.transpose(0, 1).reshape(tensor.shape)


def tensor_names(config: GptNeoXConfig) -> TensorNames:
    heads = config.num_attention_heads
    return TensorNames(
        "gpt_neox.",
        {"embedding.tokens.weight": "embed_in.weight", "decoder.norm.{p}": "final_layer_norm.{p}"},
        {("decoder.layers", "layers"): PARALLEL if config.use_parallel_residual else SEQUENTIAL},
        {"output": {"output.weight": "embed_out.weight"}},
        copies={"embed_out.weight": "{base}embed_in.weight"} if config.tie_word_embeddings else {},
        buffers=r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",
        decode=partial(regroup, heads, 3),
        encode=partial(regroup, 3, heads),
    )


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    old = {"partial_rotary_factor": document.get("rotary_pct", 0.25), "rope_theta": document.get("rotary_emb_base")}
    llama.read(fields, {**document, **old})


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    llama.write_rope(document, fields)
    document["rotary_emb_base"] = document.pop("rope_theta")  # the names of transformers 4
    document.pop("partial_rotary_factor", None)
    document["rotary_pct"] = fields["partial_rotary_factor"]


NAMES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "dropout"),
    *("max_position_embeddings", "hidden_act", "layer_norm_eps", "attention_dropout", "attention_bias"),
    *("use_parallel_residual", "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"),
)
FORMAT = FileFormat(
    {name: key for name, key in keys_of(GptNeoXConfig, dropout="hidden_dropout").items() if name in NAMES},
    tensor_names,
    read=read,
    write=write,
    class_prefix="GPTNeoX",
    model_type="gpt_neox",
    task_heads={"SequenceClassification": {"output": "score"}},
)
