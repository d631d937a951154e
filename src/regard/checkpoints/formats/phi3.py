"""The files of a Phi-3: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.formats import llama

LAYER = {
    **llama.LAYER,
    "attention.project.{p}": "self_attn.qkv_proj.{p}",
    "ffn.inner.{p}": "mlp.gate_up_proj.{p}",
}
FORMAT = llama.file_format(
    "Phi3",
    {**llama.KEYS, "sliding_window": "sliding_window"},
    layer=LAYER,
    fixed={"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_bias": False},
    code=r"(microsoft/[\w.-]+--)?(configuration|modeling)_phi3\.Phi3\w+",
    code_keys=("rope_theta", "rope_scaling", "original_max_position_embeddings"),
)
GGUF = llama.gguf_format("phi3", LAYER)
