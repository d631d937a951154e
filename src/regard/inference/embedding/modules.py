"""The modules of a sentence-transformers folder that come after the pooling: each maps vectors (B, W) to vectors.

A module is read from its folder, `2_Dense` for example: config.json and its weights. Every key of a configuration is
used, is harmless, or is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.checkpoints.files import read_tensors
from regard.errors import InputError
from regard.files.json_files import read_json

VECTOR = "sentence_embedding"  # what sentence-transformers calls the vector of a text
TOKENS = "token_embeddings"  # and the vectors of its tokens


class ConfigKeys:
    """The keys of a configuration file. What asks for nothing (None, an empty list or object) may stay unread."""

    def __init__(self, path: Path, document: dict[str, Any] | None = None, *, of: str = VECTOR) -> None:
        self.path, self.of = path, of
        self.rest: dict[str, Any] = dict((read_json(path) if path.is_file() else {}) if document is None else document)

    def keep(self, *names: str) -> None:
        """Leave out all other keys."""
        self.rest = {key: value for key, value in self.rest.items() if key in names}

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is then used."""
        return self.rest.pop(key, default)

    def take_count(self, key: str) -> int | None:
        """The value of a key that is a number from 1, or None."""
        value = self.take(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{self.path}: {key} is {value!r}; expected a whole number from 1")
        return value

    def expect(self, key: str, *supported: object) -> None:
        """Refuse a key unless it has one of the supported values."""
        value = self.rest.pop(key, None)
        if value is not None and value not in supported:
            raise self.refusal(f"{key} is {value!r}", f"expected {' or '.join(map(repr, supported))}")

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Refuse the keys that were not used."""
        unknown = [
            f"{key} is {value!r}"
            for key, value in self.rest.items()
            if key not in harmless and value not in (None, [], {})
        ]
        if unknown:
            raise self.refusal("; ".join(unknown)[:300], "expected none of this")

    def refusal(self, found: str, expected: str = "") -> InputError:
        return InputError(
            f"{self.path}: {found}, which Regard does not support{expected and '; '}{expected}. To embed without the "
            "modules of this folder, choose a pooling, such as mean"
        )


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


def activation(name: str) -> type[nn.Module]:
    """The class of an activation by its full name, such as torch.nn.modules.activation.Tanh."""
    package, _, kind = name.rpartition(".")
    found: Any = getattr(nn, kind, None)
    home = getattr(found, "__module__", "")
    known = isinstance(found, type) and issubclass(found, nn.Module) and home.startswith("torch.nn.modules.")
    if known and package in ("torch.nn", home):
        with suppress(TypeError):  # a layer with sizes
            found()
            return cast("type[nn.Module]", found)
    raise InputError(f"the activation {name!r}")


def _read_dense(keys: ConfigKeys, folder: Path) -> VectorModule:
    keys.expect("module_input_name", keys.of)
    keys.expect("module_output_name", keys.of)
    sizes = {name: keys.take_count(name) for name in ("in_features", "out_features")}
    options = {name: bool(keys.take(name, default)) for name, default in (("bias", True), ("use_residual", False))}
    if missing := [name for name, value in sizes.items() if value is None]:
        raise InputError(f"{keys.path}: {' and '.join(missing)} missing; expected the sizes of a Dense module")
    name = str(keys.take("activation_function", "torch.nn.modules.activation.Tanh"))
    try:
        module = Dense(activation_function=name, **sizes, **options)  # type: ignore[arg-type]
    except InputError as error:
        raise keys.refusal(str(error), "expected one of torch.nn, such as torch.nn.modules.activation.Tanh") from None
    return _with_weights(module, folder)


def _read_layer_norm(keys: ConfigKeys, folder: Path) -> VectorModule:
    size = keys.take_count("dimension")
    if size is None:
        raise InputError(f"{keys.path}: dimension is missing; expected the size of a LayerNorm module")
    return _with_weights(LayerNorm(dimension=size), folder)


def _read_normalize(keys: ConfigKeys, folder: Path) -> VectorModule:
    keys.expect("module_input_name", keys.of)
    keys.expect("module_output_name", keys.of)
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


def read_module(kind: str, folder: Path, *, of: str = VECTOR) -> VectorModule | None:
    """Read a module of one of the kinds in `READERS` from its folder; `of` is what it is for."""
    keys = ConfigKeys(folder / "config.json", of=of)
    module = READERS[kind](keys, folder)
    keys.finish()
    return None if module is None else module.eval().requires_grad_(False)


def _with_weights(module: VectorModule, folder: Path) -> VectorModule:
    tensors, wanted = read_tensors(folder), module.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    if shapes != expected:
        raise InputError(f"{folder}: the weights do not match config.json: expected {expected}, found {shapes}")
    module.load_state_dict({name: tensor.to(torch.float32) for name, tensor in tensors.items()})
    return module
