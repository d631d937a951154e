"""The files of a Qwen3: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.formats import llama, qwen2

FORMAT = llama.file_format(
    "Qwen3",
    {**qwen2.KEYS, "attention_bias": "attention_bias"},
    read=qwen2.read,
    write=qwen2.write,
    class_prefixes=llama.ANSWERING,
)
GGUF = llama.gguf_format("qwen3")
