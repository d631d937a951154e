"""A box of the figure: its lines of code, and what went through it in every layer.

Knows tensors and the model's own record of them. Knows no family: `walk` says which boxes there are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from regard.interpret.figure.equations import run

__all__ = [
    "Box",
    "BoxGroup",
    "BoxKind",
    "BoxPass",
    "ModuleCall",
    "ModuleCalls",
    "NamedTensor",
    "TensorSpec",
    "capture_calls",
    "run_box",
]

BoxKind = Literal["embedding", "positions", "norm", "attention", "add", "ffn", "linear", "softmax"]
BoxGroup = Literal["in", "layer", "out"]


class ModuleCall(NamedTuple):
    """What a module was given and gave."""

    given: tuple[Any, ...]
    options: dict[str, Any]
    result: Any


TensorSpec: TypeAlias = tuple[
    str, str | None, str | None
]  # a name in the code, and whose tokens its rows and columns are
ModuleCalls: TypeAlias = Mapping[nn.Module, Sequence[ModuleCall]]


@dataclass(frozen=True, eq=False)
class NamedTensor:
    """A tensor with its name in the code. `rows` and `columns` are the halves whose tokens they are, if any."""

    name: str
    tensor: Tensor
    rows: str | None = None
    columns: str | None = None


@dataclass(frozen=True, eq=False)
class BoxPass:
    """One pass through a box: the tensors, and by how much the code's result differs from the model's own."""

    values: tuple[NamedTensor, ...]
    parameters: Mapping[str, tuple[int, ...]]
    difference: float


@dataclass(frozen=True, eq=False)
class Box:
    """`name` is unique in the figure, such as decoder.cross. One step for each layer, or a single one."""

    name: str
    part: str
    group: BoxGroup
    kind: BoxKind
    title: str
    about: str
    code: str
    steps: tuple[BoxPass, ...] = field(default=())


@contextmanager
def capture_calls(model: nn.Module) -> Iterator[dict[nn.Module, list[ModuleCall]]]:
    """Keep what every module of the model is given and gives in this thread while the block runs."""
    calls: dict[nn.Module, list[ModuleCall]] = {}
    mine = threading.get_ident()

    def keep(module: nn.Module, given: tuple[Any, ...], options: dict[str, Any], result: Any) -> None:
        if threading.get_ident() == mine:
            calls.setdefault(module, []).append(ModuleCall(given, options, result))

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_hook(keep, with_kwargs=True).remove)
        yield calls


def run_box(
    code: str,
    given: Sequence[NamedTensor],
    parameters: Mapping[str, Tensor | None],
    recorded: Tensor | None,
    *,
    shown: Sequence[TensorSpec],
) -> BoxPass:
    """Run the code on what the model's own part was given; `shown` names the tensors of it that are to be seen.

    The result is the one that the model itself `recorded`; where it has none by itself, the code's.
    """
    weights = {name: tensor for name, tensor in parameters.items() if tensor is not None}
    made = run(code, {**{one.name: one.tensor for one in given}, **weights})
    values = list(given)
    for name, rows, columns in shown:
        tensor = made.get(name)
        if isinstance(tensor, Tensor):
            tensor = recorded if name == "out" and recorded is not None else tensor.detach()
            values.append(NamedTensor(name, tensor, rows, columns))
    out = made["out"]
    assert isinstance(out, Tensor)
    difference = 0.0 if recorded is None else float((out - recorded).abs().max())
    return BoxPass(tuple(values), {name: tuple(tensor.shape) for name, tensor in weights.items()}, difference)
