"""The modules of a sentence-transformers folder that come after the pooling: each maps vectors (B, W) to vectors.

A module is read from its folder, `2_Dense` for example: config.json and its weights. Every key of a configuration is
used, is harmless, or is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.checkpoints.files import read_tensors
from regard.checkpoints.module_folders import ConfigKeys, Module, activation
from regard.errors import InputError

VECTOR = "sentence_embedding"  # what sentence-transformers calls the vector of a text
TOKENS = "token_embeddings"  # and the vectors of its tokens
POOL = "To embed without the modules of this folder, choose a pooling, such as mean"  # advice for a refused file


class VectorModule(nn.Module):
    """A module after the pooling: `config` are its keys in config.json, `width` is that of its output."""

    width: int | None = None  # None: that of the input
    input_width: int | None = None

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = config


class Normalize(VectorModule):
    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=-1)


class LayerNorm(VectorModule):
    def __init__(self, *, dimension: int) -> None:
        super().__init__(dimension=dimension)
        self.width = self.input_width = dimension
        self.norm = nn.LayerNorm(dimension)

    def forward(self, vectors: Tensor) -> Tensor:
        normed: Tensor = self.norm(vectors)
        return normed


class Dense(VectorModule):
    """A linear layer with an activation, and with `use_residual` its input added to the output."""

    def __init__(
        self, *, in_features: int, out_features: int, bias: bool, activation_function: str, use_residual: bool = False
    ) -> None:
        config: dict[str, Any] = {"in_features": in_features, "out_features": out_features, "bias": bias}
        config |= {"activation_function": activation_function, **({"use_residual": True} if use_residual else {})}
        super().__init__(**config)
        self.input_width, self.width, self.use_residual = in_features, out_features, use_residual
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = activation(activation_function)()
        if use_residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        output: Tensor = self.activation(self.linear(vectors))
        if not self.use_residual:
            return output
        return output + (self.residual(vectors) if hasattr(self, "residual") else vectors)


def _read_dense(keys: ConfigKeys, folder: Path) -> VectorModule:
    sizes = {name: keys.take_count(name) for name in ("in_features", "out_features")}
    options = {name: bool(keys.take(name, default)) for name, default in (("bias", True), ("use_residual", False))}
    if missing := [name for name, value in sizes.items() if value is None]:
        raise InputError(f"{keys.path}: {' and '.join(missing)} missing; expected the sizes of a Dense module")
    name = str(keys.take("activation_function", "torch.nn.modules.activation.Tanh"))
    try:
        module = Dense(activation_function=name, **sizes, **options)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{keys.path}: {error}. {keys.advice}") from None
    return _with_weights(module, folder)


def _read_layer_norm(keys: ConfigKeys, folder: Path) -> VectorModule:
    size = keys.take_count("dimension")
    if size is None:
        raise InputError(f"{keys.path}: dimension is missing; expected the size of a LayerNorm module")
    return _with_weights(LayerNorm(dimension=size), folder)


def _read_normalize(keys: ConfigKeys, folder: Path) -> VectorModule:
    return Normalize()


def _read_dropout(keys: ConfigKeys, folder: Path) -> None:
    keys.take("dropout")  # of training


# What follows the pooling, by the name of its class. None: nothing is computed.
READERS: dict[str, Callable[[ConfigKeys, Path], VectorModule | None]] = {
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Normalize": _read_normalize,
    "Dropout": _read_dropout,
}


def read_module(module: Module, *, of: str = VECTOR) -> VectorModule | None:
    """Read a module of one of the kinds in `READERS` from its folder; `of` is what it is for."""
    keys = module.keys(advice=POOL if of == VECTOR else "")
    keys.expect("module_input_name", of)
    keys.expect("module_output_name", of)
    found = READERS[module.kind](keys, module.folder)
    keys.finish()
    return None if found is None else found.eval().requires_grad_(False)


def _with_weights(module: VectorModule, folder: Path) -> VectorModule:
    tensors, wanted = read_tensors(folder), module.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    if shapes != expected:
        raise InputError(f"{folder}: the weights do not match config.json: expected {expected}, found {shapes}")
    module.load_state_dict({name: tensor.to(torch.float32) for name, tensor in tensors.items()})
    return module
