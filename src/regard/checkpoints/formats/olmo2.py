"""The files of an OLMo 2: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.formats import llama

LAYER = {
    **{ours: theirs for ours, theirs in llama.LAYER.items() if "_residual" not in ours},
    "attention_residual.post_norm.weight": "post_attention_layernorm.weight",
    "ffn_residual.post_norm.weight": "post_feedforward_layernorm.weight",
}
FORMAT = llama.file_format(
    "Olmo2", {**llama.KEYS, "attention_bias": "attention_bias"}, layer=LAYER, fixed={"clip_qkv": None}
)
