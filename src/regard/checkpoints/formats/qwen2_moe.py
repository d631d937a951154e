"""The files of a Qwen2-MoE: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from regard.checkpoints.formats import llama, mixtral, smollm3

EXPERTS = ("num_experts_per_tok", "norm_topk_prob", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers")
LAYER = {
    **llama.LAYER,
    "ffn.shared.inner.weight": ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
    "ffn.shared.outer.weight": "mlp.shared_expert.down_proj.weight",
    "ffn.shared_gate.weight": "mlp.shared_expert_gate.weight",
}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    llama.read(fields, document)
    smollm3.check_full_attention(document)


NAMES = partial(mixtral.tensor_names, "mlp", ("gate_proj", "up_proj", "down_proj"), LAYER)
FULL = {"use_sliding_window": False}
KEYS = {
    **llama.KEYS,
    **{name: name for name in ("qkv_bias", "num_experts", "shared_expert_intermediate_size", *EXPERTS)},
}
FORMAT = llama.file_format("Qwen2Moe", KEYS, names=NAMES, read=read, fixed=FULL, model_type="qwen2_moe")
