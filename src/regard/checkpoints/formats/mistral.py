"""The files of a Mistral: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.formats import llama

FORMAT = llama.file_format("Mistral", {**llama.KEYS, "sliding_window": "sliding_window"})
