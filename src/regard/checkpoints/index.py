"""Which files of a folder hold the weights: the names that Hugging Face gives them, and index files over shards.

Knows names only, no tensor: what to download can be decided without torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json

__all__ = ["INDEX", "SAFETENSORS", "WEIGHTS", "preferred_weights", "read_index"]

INDEX = ".index.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
WEIGHTS = (SAFETENSORS, SAFETENSORS + INDEX, PICKLE, PICKLE + INDEX)


def preferred_weights(names: Collection[str]) -> str | None:
    """The weight file, or index of weight files, to read among the names in a folder; None where there is none."""
    return next((name for name in WEIGHTS if name in names), None)


def read_index(path: str | os.PathLike[str]) -> dict[str, str]:
    """From an index file: the name of each tensor, and of the file in the same folder that holds it."""
    path = Path(path)
    written = read_json(path, limit=64_000_000).get("weight_map")
    if not isinstance(written, dict) or not written:
        raise InputError(
            f"{path}: expected an object 'weight_map' of tensor names and file names; download or copy it again"
        )
    suffix = ".safetensors" if path.name == SAFETENSORS + INDEX else ".bin"
    index: dict[str, str] = {}
    for name, shard in written.items():
        # Plain names only: no separator, no drive, no parent folder, and no pattern that a download would widen.
        if not isinstance(shard, str) or not re.fullmatch(r"\w[\w.-]*", shard, re.ASCII) or not shard.endswith(suffix):
            raise InputError(
                f"{path}: refused: tensor {name!r} is said to lie in {shard!r}; "
                f"expected the plain name of a {suffix} file in the same folder"
            )
        index[name] = shard
    return index
