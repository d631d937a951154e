"""The names of weight files on Hugging Face, and index files of shards. Does not import torch."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json

INDEX = ".index.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
WEIGHTS = (SAFETENSORS, SAFETENSORS + INDEX, PICKLE, PICKLE + INDEX)


def preferred_weights(names: Collection[str]) -> str | None:
    """Return the weight file, or index of weight files, to read among the files of a folder; None if there is none."""
    return next((name for name in WEIGHTS if name in names), None)


def read_index(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read an index file: the name of each tensor and of the file in the same folder that contains it."""
    path = Path(path)
    weight_map = read_json(path, limit=64_000_000).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(
            f"{path}: expected an object 'weight_map' of tensor names and file names; download or copy it again"
        )
    suffix = ".safetensors" if path.name == SAFETENSORS + INDEX else ".bin"
    index: dict[str, str] = {}
    for name, shard in weight_map.items():
        # Plain names only: no separators, drives, parent folders, or patterns that a download would expand.
        if not isinstance(shard, str) or not re.fullmatch(r"\w[\w.-]*", shard, re.ASCII) or not shard.endswith(suffix):
            raise InputError(
                f"{path}: refused: tensor {name!r} is listed in {shard!r}; "
                f"expected the plain name of a {suffix} file in the same folder"
            )
        index[name] = shard
    return index
