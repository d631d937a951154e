"""Writes GGUF files for tests, with the library `gguf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType

ARRAYS = {str: GGUFValueType.STRING, int: GGUFValueType.INT32, float: GGUFValueType.FLOAT32}
KINDS = {**ARRAYS, int: GGUFValueType.UINT32, bool: GGUFValueType.BOOL}


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    quantization: str = "F32",
) -> Path:
    """Write a file; keys that begin with "." belong to the architecture. Matrices get the type `quantization`."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        name = f"{architecture}{key}" if key.startswith(".") else key
        if isinstance(value, (list, tuple)):
            writer.add_key_value(name, list(value), GGUFValueType.ARRAY, ARRAYS[type(value[0])])
        else:
            writer.add_key_value(name, value, KINDS[type(value)])
    kind = GGMLQuantizationType[quantization]
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor)
        if array.ndim < 2 or quantization == "F32":
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level_metadata(tokens: Sequence[str], merges: Sequence[str], *, pre: str, control: int) -> dict[str, Any]:
    """The metadata of a byte-level BPE tokenizer whose first `control` tokens are special."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [3 if number < control else 1 for number in range(len(tokens))],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }
