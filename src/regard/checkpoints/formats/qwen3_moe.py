"""The files of a Qwen3-MoE: keys of config.json and names of tensors."""

from __future__ import annotations

from functools import partial

from regard.checkpoints.formats import llama, mixtral, qwen2_moe

NAMES = partial(mixtral.tensor_names, "mlp", ("gate_proj", "up_proj", "down_proj"), llama.LAYER)
KEYS = {
    **llama.KEYS,
    **{name: name for name in ("attention_bias", *qwen2_moe.EXPERTS)},
    "num_experts": "num_local_experts",
}
FORMAT = llama.file_format(
    "Qwen3Moe",
    KEYS,
    names=NAMES,
    read=qwen2_moe.read,
    fixed=qwen2_moe.FULL,
    aliases={"num_experts": "num_local_experts"},  # of published files
    model_type="qwen3_moe",
)
