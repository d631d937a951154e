"""Conversion of tensors between transformers' names and Regard's; the tables are in the families of `regard.models`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.models.family import Table, TensorNames, get_family


def names_of(config: Any) -> TensorNames:
    """Return the tensor names in the files of a family; `base` is empty for Regard's own format."""
    family = get_family(config.family)
    if family.file_format is not None:
        return family.file_format.tensor_names(config)
    return TensorNames(heads={head: {f"{head}.{{p}}": f"{head}.{{p}}"} for head in family.heads})


def entries(names: TensorNames, config: Any, heads: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the complete table for one model: our name -> their names, for every layer."""
    table = _expand(names.base, "", names.prefix)
    for (ours, theirs), layer in names.layers.items():
        for i in range(_depth(config, ours)):
            table |= _expand(layer, f"{ours}.{i}.", f"{names.prefix}{theirs}.{i}.")
    for head in heads:
        table |= _head(names, head)
    return table


def heads_in(names: TensorNames, heads: Iterable[str], tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the `heads` of which a file has at least one tensor."""
    return [head for head in heads if any(name in tensors for theirs in _head(names, head).values() for name in theirs)]


def _head(names: TensorNames, head: str) -> dict[str, tuple[str, ...]]:
    table = _expand(names.heads[head], "", "")
    return {ours: tuple(name.replace("{base}", names.prefix) for name in theirs) for ours, theirs in table.items()}


def _expand(table: Table, prefix: str, their_prefix: str) -> dict[str, tuple[str, ...]]:
    expanded = {}
    for ours, theirs in table.items():
        names = (theirs,) if isinstance(theirs, str) else theirs
        for p in ("weight", "bias") if "{p}" in ours else ("",):
            expanded[prefix + ours.replace("{p}", p)] = tuple(their_prefix + name.replace("{p}", p) for name in names)
    return expanded


def _depth(config: Any, stack: str) -> int:
    name = (
        "num_decoder_layers"
        if stack.startswith("decoder") and hasattr(config, "num_decoder_layers")
        else "num_hidden_layers"
    )
    depth: int = getattr(config, name)
    return depth


def fitted(names: TensorNames, tensors: Iterable[str]) -> TensorNames:
    """Return the names with the prefix that a file uses: files of a base model have none."""
    prefix = names.prefix if any(name.startswith(names.prefix) for name in tensors) else ""
    copies = {copy: original.replace("{base}", prefix) for copy, original in names.copies.items()}
    return replace(names, prefix=prefix, copies=copies)


def tidied(names: TensorNames, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file with current names, without buffers and copies; a copy may replace its original."""
    result = {_modern(name): tensor for name, tensor in tensors.items() if not re.fullmatch(names.buffers, name)}
    for copy, original in names.copies.items():
        if copy in result and original not in result:
            result[original] = result.pop(copy)
        elif copy in result and torch.equal(result[copy], result[original]):
            del result[copy]
    return result


def _modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def from_theirs(names: TensorNames, ours: str, parts: list[Tensor]) -> Tensor:
    """Convert their tensors to one of ours."""
    tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    return tensor.T.contiguous() if tensor.ndim == 2 and re.fullmatch(names.transposed, ours) else tensor


def to_theirs(names: TensorNames, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
    """Convert one of our tensors to `count` of theirs."""
    if tensor.ndim == 2 and re.fullmatch(names.transposed, ours):
        tensor = tensor.T
    return [part.contiguous() for part in tensor.chunk(count)]
