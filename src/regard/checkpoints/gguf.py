"""Reads the config and the weights of a GGUF file; `GGUF` in the module of its format says how a family is stored.

Quantized tensors are converted to float32 by the library `gguf`, which is imported when a file has some.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checkpoints.configs import parse_fields
from regard.checkpoints.file_format import FileFormat, gguf_formats
from regard.checkpoints.files import reads_outlines
from regard.errors import InputError, suggest
from regard.files.gguf_file import GgufFile
from regard.models.family import families

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
VECTORS = ("rope_freqs.weight",)  # tensors that are settings
FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
CHUNK = 1 << 11  # blocks that are dequantized together
TOKEN_IDS = ("bos_token_id", "eos_token_id", "eot_token_id")
INSTALL = 'pip install "regard[checkpoints]"'
# Keys of an architecture that do not affect the computation, or repeat what the tensors say.
IGNORED = {
    *("vocab_size", "tensor_data_layout", "attention.causal", "rope.scaling.finetuned"),
    *("rope.dimension_count", "attention.value_length"),  # families that know them compare them
}


def read_gguf_config(file: GgufFile) -> tuple[Any, FileFormat]:
    """The config of the model in a file, and how the family stores it.

    Raises InputError for a setting of the architecture that the family does not know.
    """
    architecture = file.architecture
    known = {name: (family, one) for family in families().values() for name, one in gguf_formats(family.name).items()}
    if architecture not in known:
        hint = suggest(architecture[:60], known)
        raise InputError(f"{file.path}: the architecture {architecture[:60]!r} is not one that Regard reads; {hint}")
    if file.metadata.get("split.count", 0) not in (0, 1):
        raise InputError(
            f"{file.path}: one of {file.metadata['split.count']} parts of a model; "
            "merge them with `llama-gguf-split --merge` of llama.cpp, and load the result"
        )
    if EMBEDDING not in file.tensors:
        raise InputError(f"{file.path}: {EMBEDDING} is missing; expected a model for texts with its weights")
    family, form = known[architecture]
    prefix = f"{architecture}."
    settings = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    supported = {*IGNORED, *form.keys.values(), *form.fixed}
    unknown = [
        key for key, value in settings.items() if key not in supported or not isinstance(value, (str, int, float))
    ]
    if unknown:
        raise InputError(
            f"{file.path}: {', '.join(prefix + key[:60] for key in sorted(unknown)[:8])}: settings that Regard's "
            f"{family.name} does not have; load another model, or convert it with the current llama.cpp"
        )
    token_ids = {key: file.metadata.get(f"tokenizer.ggml.{key}") for key in TOKEN_IDS}
    vectors = {
        name: _tensor(file, name).tolist()
        for name, one in file.tensors.items()
        if name in VECTORS and len(one.shape) == 1
    }
    sizes = {"vocab_size": file.tensors[EMBEDDING].shape[0], "tie_word_embeddings": OUTPUT not in file.tensors}
    return parse_fields({**settings, **token_ids, **vectors, **sizes}, family, form, file.path), form


def read_gguf_tensors(file: GgufFile) -> dict[str, Tensor]:
    """All tensors by name, on the CPU: memory mapped if they are stored as floats, else converted to float32."""
    return {name: _tensor(file, name) for name in file.tensors}


def _tensor(file: GgufFile, name: str) -> Tensor:
    stored, data = file.tensors[name], file.bytes_of(name)
    if stored.type in FLOATS:
        tensor = torch.from_numpy(data).view(FLOATS[stored.type]).view(stored.shape)
        return tensor.to("meta") if reads_outlines() and name not in VECTORS else tensor
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise InputError(
            f"{file.path}: {name} is stored as {stored.type}, which is read with the package gguf: {INSTALL}"
        ) from None
    if reads_outlines():
        return torch.empty(stored.shape, device="meta")
    kind = GGMLQuantizationType[stored.type]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    result = torch.empty(stored.size // block_bytes, block)
    blocks = data.reshape(-1, block_bytes)
    with np.errstate(all="ignore"):  # damaged scales may overflow; the values are then infinite
        for start in range(0, len(blocks), CHUNK):  # in long rows, because the library converts 16 rows at a time
            part = blocks[start : start + CHUNK]
            result[start : start + CHUNK] = torch.from_numpy(dequantize(part.reshape(1, -1), kind)).view(-1, block)
    return result.view(stored.shape)
