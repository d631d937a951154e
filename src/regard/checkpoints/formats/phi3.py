"""The files of a Phi-3: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import TensorNames
from regard.checkpoints.formats import llama
from regard.models.llama import LlamaConfig


def tensor_names(config: LlamaConfig) -> TensorNames:
    fused = {
        "attention.project.weight": "self_attn.qkv_proj.weight",
        "ffn.inner.weight": "mlp.gate_up_proj.weight",
    }
    return llama.tensor_names(config, {**llama.layer_names(config), **fused})


FORMAT = llama.file_format(
    "Phi3",
    {**llama.KEYS, "sliding_window": "sliding_window"},
    tensor_names=tensor_names,
    fixed={"resid_pdrop": 0.0, "embd_pdrop": 0.0},
)
GGUF = llama.gguf_format("phi3", tensor_names)
