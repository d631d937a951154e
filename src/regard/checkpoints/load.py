"""Reads models from folders and writes them; errors name each tensor that does not match config.json."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from regard.checkpoints.configs import parse_config, write_config
from regard.checkpoints.files import read_tensors, write_folder
from regard.checkpoints.renames import entries, fitted, from_theirs, heads_in, names_of, tidied, to_theirs
from regard.errors import InputError
from regard.files.json_files import json_bytes, read_json
from regard.models.family import TensorNames, build, describe_family, families, get_family

ALIGNMENT = 64  # bytes, that of torch's CPU allocator


def read_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the model in a folder, in evaluation mode, on the CPU, with the heads that the file contains."""
    model, unused = read_parts(folder, dtype=dtype)
    if unused:
        warnings.warn(f"{folder}: not used: {_some(sorted(unused))}", stacklevel=3)
    return model


def read_parts(folder: Path, *, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model in a folder and the other tensors in the file, by their names there."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: no config.json; expected a model folder with config.json and model.safetensors")
    config = parse_config(read_json(path), path)
    tensors = read_tensors(folder)
    names = fitted(names_of(config), tensors)
    tensors = tidied(names, tensors)
    heads = heads_in(names, get_family(config.family).heads, tensors)
    try:
        with torch.device("meta"), _SkipInit():  # allocates nothing: every weight comes from the file
            model = build(config, heads=heads)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{path}: {error}") from error
    table = _table(names, config, heads, model)
    unused = _compare(names, table, tensors=tensors, wanted=model.state_dict(), folder=folder)
    state = {ours: from_theirs(names, ours, [tensors[name] for name in theirs]) for ours, theirs in table.items()}
    model.load_state_dict({ours: _aligned(tensor.to(dtype)) for ours, tensor in state.items()}, assign=True)
    return model.requires_grad_(True).eval(), {name: tensors[name].to(dtype) for name in unused}


def write_model(
    model: nn.Module,
    folder: Path,
    *,
    files: Mapping[str, bytes],
    rest: Mapping[str, Tensor] | None = None,
    about: Mapping[str, object] | None = None,
    overwrite: bool = False,
) -> None:
    """Write config.json, the weights and `files`, all or nothing, with checksums.

    `rest` are additional tensors and `about` additional keys of config.json, under the names of transformers.
    `overwrite` is passed to `write_folder`.
    """
    model = getattr(model, "_orig_mod", model)  # unwrap a compiled model
    config: Any = getattr(model, "config", None)
    if getattr(config, "family", None) not in families():
        raise InputError(f"{folder}: a {type(model).__name__} cannot be saved; expected a model of regard.models")
    heads = [head for head in get_family(config.family).heads if getattr(model, head, None) is not None]
    names, state = names_of(config), model.state_dict()
    table = _table(names, config, heads, model)
    if lost := sorted(state.keys() - table.keys()):
        title = describe_family(config.family)
        raise InputError(f"{folder}: not written: the format of {title} cannot store {_some(lost)}")
    tensors: dict[str, Tensor] = dict(rest or {})
    for ours, theirs in table.items():
        tensors |= dict(zip(theirs, to_theirs(names, ours, state[ours], len(theirs)), strict=True))
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    document = json_bytes({**write_config(config, heads=heads, dtype=dtype), **(about or {})})
    write_folder(folder, tensors=tensors, files={**files, "config.json": document}, overwrite=overwrite)


def _table(names: TensorNames, config: Any, heads: list[str], model: nn.Module) -> dict[str, tuple[str, ...]]:
    return entries(names, config, heads) if names.base else {name: (name,) for name in model.state_dict()}


def _compare(
    names: TensorNames,
    table: Mapping[str, tuple[str, ...]],
    *,
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    folder: Path,
) -> set[str]:
    """Raise InputError that names each tensor that does not match; return the names of unused tensors."""
    unused = set(tensors)
    problems = []
    for ours, theirs in table.items():
        for name, part in zip(theirs, to_theirs(names, ours, wanted[ours], len(theirs)), strict=True):
            unused.discard(name)
            if name not in tensors:
                problems.append(f"{name} is missing")
            elif tensors[name].shape != part.shape:
                problems.append(f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(part.shape)}")
            elif not tensors[name].is_floating_point():
                problems.append(f"{name} has dtype {tensors[name].dtype}, expected a floating point type")
    for name in sorted(unused & names.copies.keys()):
        problems.append(f"{name} differs from {names.copies[name]}, but Regard uses one tensor for both")
    if problems:
        problems += [f"{name} is not expected" for name in sorted(unused - names.copies.keys())]
        raise InputError(f"{folder}: the weights do not match config.json: {_some(problems)}")
    return unused


def _aligned(tensor: Tensor) -> Tensor:
    """Return the tensor at an address with the alignment of torch's allocator.

    In a memory-mapped file a tensor may start at any address, and the last bit of MKL's matrix products depends on
    the alignment: a loaded model must compute the same values as the saved one.
    """
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


class _SkipInit(TorchFunctionMode):
    """Skips random initialization, which on the device "meta" would only import torch's compiler."""

    RANDOM = frozenset({Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_})

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _some(items: list[str], most: int = 8) -> str:
    """Return the first items and the number of the others."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(item[:200] for item in items[:most]) + more
