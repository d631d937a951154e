"""Tensors under their names in transformers' files, and under Regard's; the tables are in `regard.models.families`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.models.family import Table, TensorNames, get_family

__all__ = ["entries", "fitted", "from_theirs", "heads_in", "names_of", "tidied", "to_theirs"]


def names_of(config: Any) -> TensorNames:
    """The tensor names of a family's files; an empty `base` where they are Regard's own."""
    family = get_family(config.family)
    if family.file_format is not None:
        return family.file_format.tensor_names(config)
    return TensorNames(heads={head: {f"{head}.{{p}}": f"{head}.{{p}}"} for head in family.heads})


def entries(names: TensorNames, config: Any, heads: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The whole table for one model: our name -> their names, every layer written out."""
    table = _written(names.base, "", names.prefix)
    for (ours, theirs), layer in names.layers.items():
        for i in range(_depth(config, ours)):
            table |= _written(layer, f"{ours}.{i}.", f"{names.prefix}{theirs}.{i}.")
    for head in heads:
        table |= _head(names, head)
    return table


def heads_in(names: TensorNames, heads: Iterable[str], tensors: Mapping[str, Tensor]) -> list[str]:
    """Those of a family's `heads` that a file has, be it in part."""
    return [head for head in heads if any(name in tensors for theirs in _head(names, head).values() for name in theirs)]


def _head(names: TensorNames, head: str) -> dict[str, tuple[str, ...]]:
    table = _written(names.heads[head], "", "")
    return {ours: tuple(name.replace("{base}", names.prefix) for name in theirs) for ours, theirs in table.items()}


def _written(part: Table, before: str, their_before: str) -> dict[str, tuple[str, ...]]:
    table = {}
    for ours, theirs in part.items():
        several = (theirs,) if isinstance(theirs, str) else theirs
        for p in ("weight", "bias") if "{p}" in ours else ("",):
            table[before + ours.replace("{p}", p)] = tuple(their_before + name.replace("{p}", p) for name in several)
    return table


def _depth(config: Any, stack: str) -> int:
    name = (
        "num_decoder_layers"
        if stack.startswith("decoder") and hasattr(config, "num_decoder_layers")
        else "num_hidden_layers"
    )
    depth: int = getattr(config, name)
    return depth


def fitted(names: TensorNames, tensors: Iterable[str]) -> TensorNames:
    """The names as a file writes them: that of a bare model leaves the prefix out."""
    prefix = names.prefix if any(name.startswith(names.prefix) for name in tensors) else ""
    copies = {copy: original.replace("{base}", prefix) for copy, original in names.copies.items()}
    return replace(names, prefix=prefix, copies=copies)


def tidied(names: TensorNames, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's tensors: old names made new, buffers and true copies left out; a copy may stand in for its original."""
    found = {_modern(name): tensor for name, tensor in tensors.items() if not re.fullmatch(names.buffers, name)}
    for copy, original in names.copies.items():
        if copy in found and original not in found:
            found[original] = found.pop(copy)
        elif copy in found and torch.equal(found[copy], found[original]):
            del found[copy]
    return found


def _modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def from_theirs(names: TensorNames, ours: str, parts: list[Tensor]) -> Tensor:
    """One of our tensors from theirs."""
    tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    return tensor.T.contiguous() if tensor.ndim == 2 and re.fullmatch(names.transposed, ours) else tensor


def to_theirs(names: TensorNames, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
    """The way back."""
    if tensor.ndim == 2 and re.fullmatch(names.transposed, ours):
        tensor = tensor.T
    return [part.contiguous() for part in tensor.chunk(count)]
