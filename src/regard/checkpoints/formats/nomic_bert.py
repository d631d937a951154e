"""The files of a NomicBERT: keys of config.json, also those of its authors' code, and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of
from regard.checkpoints.formats import bert, llama
from regard.errors import InputError
from regard.models.nomic_bert import NomicBertConfig

LAYER: Table = {
    "attention.project.weight": "attn.Wqkv.weight",
    "attention.output.weight": "attn.out_proj.weight",
    "attention_residual.norm.{p}": "norm1.{p}",
    "ffn.inner.weight": ("mlp.fc12.weight", "mlp.fc11.weight"),
    "ffn.outer.weight": "mlp.fc2.weight",
    "ffn_residual.norm.{p}": "norm2.{p}",
}
NAMES = TensorNames(
    "nomic_bert.",
    {
        "embedding.tokens.weight": "embeddings.word_embeddings.weight",
        "embedding.norm.{p}": "emb_ln.{p}",
        **bert.SEGMENTS,
    },
    {("encoder.layers", "encoder.layers"): LAYER},
    {
        "pooler": bert.POOLER,
        "mlm_head": bert.mlm_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.layer_norm", "cls.predictions.bias"
        ),
    },
    copies={"cls.predictions.decoder.weight": bert.TOKENS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=r"(embeddings\.position_ids|encoder\.layers\.\d+\.attn\.rotary_emb\.inv_freq)",
    old_prefixes=("bert.",),
)
# Settings of the authors' code that choose another computation if they are missing.
CHOICES = {
    "activation_function": "swiglu",
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    if "rotary_emb_fraction" in document or "n_positions" in document:
        required = (*CHOICES, "rotary_emb_base", "layer_norm_eps")
        keys = {"layer_norm_eps": "layer_norm_epsilon"}
        if missing := [keys.get(key, key) for key in required if document.get(key) is None]:
            raise InputError(f"{', '.join(missing)}: missing, and the code of the authors has other defaults")
        fields["max_position_embeddings"] = document.get("n_positions", fields.get("max_position_embeddings"))
    check_sizes(fields, document)
    llama.read_rope(fields, document)
    if document.get("rotary_emb_base") is not None:
        if document.get("rope_parameters") and fields["rope_theta"] != document["rotary_emb_base"]:
            raise InputError(f"rotary_emb_base differs from rope_theta, {str(fields['rope_theta'])[:60]}; remove one")
        fields["rope_theta"] = document["rotary_emb_base"]


def check_sizes(fields: Mapping[str, Any], document: Mapping[str, object]) -> None:
    """Refuse heads whose size does not follow from the width."""
    width, heads, size = fields["hidden_size"], fields["num_attention_heads"], document.get("head_dim")
    if size is not None and (not isinstance(width, int) or not isinstance(heads, int) or size != width / (heads or 1)):
        raise InputError(f"head_dim is {str(size)[:60]}; expected hidden_size / num_attention_heads")


KEYS = {
    name: key
    for name, key in keys_of(NomicBertConfig, **bert.RENAMED).items()
    if name not in ("embedding_size", "position_offset", "partial_rotary_factor") and not name.startswith("rope_")
}
HEAD = {"pool.0": "nomic_bert.pooler.dense", "output": "classifier"}
FORMAT = FileFormat(
    KEYS,
    NAMES,
    {
        "tie_word_embeddings": True,
        **CHOICES,
        **dict.fromkeys(("prenorm", "parallel_block", "parallel_block_tied_norm", "causal", "use_rms_norm"), False),
        **dict.fromkeys(("rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx", "add_cross_attention"), False),
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("num_experts", "moe_every_n_layers"), 0),
        "scale_attn_weights": True,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
    },
    aliases={
        "n_embd": "hidden_size",
        "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    optional=("max_position_embeddings",),
    read=read,
    write=llama.write_rope,
    code=r"(nomic-ai/nomic-bert-2048--)?(configuration|modeling)_hf_nomic_bert\.NomicBert\w+",
    code_keys=(
        *("rotary_emb_base", "n_positions", "max_trained_positions", "head_dim", "rope_parameters", "rope_theta"),
        *("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy"),
        *("pad_vocab_size_multiple", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout"),
        *("summary_proj_to_labels", "summary_type", "summary_use_proj"),
    ),
    class_prefix="NomicBert",
    model_type="nomic_bert",
    task_heads={"SequenceClassification": HEAD},
)
