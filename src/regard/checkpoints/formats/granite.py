"""The files of a Granite: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.formats import llama

SCALES = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
FORMAT = llama.file_format(
    "Granite",
    {**llama.KEYS, **{name: name for name in ("attention_bias", "mlp_bias", *SCALES)}},
    defaults={"num_key_value_heads": None, "layer_norm_eps": 1e-6},
    task_heads={},
)
