"""A folder to a model and back: reads config.json and the tensors, and says by name what does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.catalog import Config, build, family_of
from regard.weights.configs import parse_config, write_config
from regard.weights.documents import json_bytes
from regard.weights.files import read_json, read_tensors, write_folder
from regard.weights.renames import Names, entries, from_theirs, names_of, tidied, to_theirs

__all__ = ["read_model", "write_model"]


def read_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model in a folder, in evaluation mode, on the CPU, with the heads the file has."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: no config.json; expected a model folder with config.json and model.safetensors")
    config = parse_config(read_json(path), path)
    tensors = read_tensors(folder)
    names = names_of(config)
    found = tensors if names is None else tidied(names, tensors)
    heads = [head for head in family_of(config.family).heads if _has_head(names, head, found)]
    with torch.device("meta"):  # no memory, no random numbers: every weight comes from the file
        model = build(config, heads=heads)
    shapes = {name: parameter.shape for name, parameter in model.state_dict().items()}
    table = {name: (name,) for name in shapes} if names is None else entries(names, config, heads)
    state, wrong = {}, []
    for ours, theirs in table.items():
        parts = [found[name] for name in theirs if name in found]
        if len(parts) < len(theirs):
            wrong += [f"{name} is missing" for name in theirs if name not in found]
            continue
        try:
            tensor = parts[0] if names is None else from_theirs(names, ours, parts)
        except RuntimeError:
            tensor = parts[0]
        if tensor.shape != shapes[ours]:
            wrong.append(f"{' + '.join(theirs)} has shape {tuple(tensor.shape)}, expected {tuple(shapes[ours])}")
            continue
        state[ours] = tensor.to(dtype)
    if wrong:
        raise InputError(f"{folder}: the weights do not fit config.json: {_some(wrong)}")
    unused = sorted(set(found) - {name for theirs in table.values() for name in theirs})
    if unused:
        warnings.warn(f"{folder}: not used: {_some(unused)}", stacklevel=2)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(True).eval()


def _has_head(names: Names | None, head: str, found: Mapping[str, Tensor]) -> bool:
    if names is None:
        return any(name.startswith(head + ".") for name in found)
    first = {part for theirs in names.heads[head].values() for part in ([theirs] if isinstance(theirs, str) else theirs)}
    wanted = {name.replace("{p}", p) for name in first for p in ("weight", "bias")}
    return any(name in found or names.prefix + name in found for name in wanted)


def write_model(model: nn.Module, folder: Path, *, files: Mapping[str, bytes]) -> None:
    """Write config.json, the weights and `files`, all or nothing, with checksums."""
    config = cast(Config, model.config)
    heads = [head for head in family_of(config.family).heads if getattr(model, head, None) is not None]
    names, state = names_of(config), model.state_dict()
    tensors: dict[str, Tensor] = {}
    if names is None:
        tensors = dict(state)
    else:
        for ours, theirs in entries(names, config, heads).items():
            tensors |= dict(zip(theirs, to_theirs(names, ours, state[ours], len(theirs)), strict=True))
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    document = json_bytes(write_config(config, heads=heads, dtype=dtype))
    write_folder(folder, tensors=tensors, files={**files, "config.json": document})


def _some(items: list[str], most: int = 8) -> str:
    """The first few, and how many more."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + more
