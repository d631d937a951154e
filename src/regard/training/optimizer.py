"""Optimizers: AdamW for everything, or Muon for the matrices inside the layers and AdamW for the rest.

Learning rate schedules are in `regard.training.settings`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn.attention import FusedProjection
from regard.nn.block import FeedForward
from regard.nn.stack import Stack
from regard.training.distributed.shards import WholeMatrices, is_sharded, local_part

OptimizerName = Literal["adamw", "muon"]

STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # steep at 0: small singular values are near 1 after five steps
ADAM_RMS = 0.2  # the typical root mean square of AdamW's updates, to which Muon's are scaled


def build_optimizers(
    model: nn.Module,
    *,
    name: OptimizerName,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-6,
    weight_decay: float = 0.01,
) -> list[torch.optim.Optimizer]:
    """The optimizers that train `model` together; one learning rate suits both."""
    check_choice("optimizer", name, get_args(OptimizerName))
    matrices = _matrices(model) if name == "muon" else {}
    if name == "muon" and not matrices:
        raise InputError("muon trains the matrices inside layers, and this model has none; use adamw")
    rest = parameter_groups(model, weight_decay=weight_decay, without=matrices)
    kinds = {parameter.device.type for group in rest for parameter in group["params"]}
    adam = torch.optim.AdamW(rest, lr=learning_rate, betas=betas, eps=eps, fused=kinds <= {"cpu", "cuda"})
    if not matrices:
        return [adam]
    parts = sorted(set(matrices.values()), key=str)
    split = [{"params": [p for p, other in matrices.items() if other == part], "parts": part} for part in parts]
    return [Muon(split, lr=learning_rate, weight_decay=weight_decay), adam]


def parameter_groups(
    model: nn.Module, *, weight_decay: float, without: Collection[nn.Parameter] = ()
) -> list[dict[str, Any]]:
    """The trainable parameters in two groups: weight decay for matrices and embeddings, none for biases and norms."""
    excluded = {id(parameter) for parameter in without}  # `in` would compare values
    parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in excluded]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def state_tensors(model: nn.Module, name: OptimizerName) -> dict[nn.Parameter, int]:
    """How many tensors of its own size the optimizers keep for each parameter: momentum, and AdamW's second moment."""
    matrices = _matrices(model) if name == "muon" else {}
    return {parameter: 1 if parameter in matrices else 2 for parameter in model.parameters()}


def default_learning_rate(width: int, base: float = 1e-4) -> float:
    """The peak learning rate for a hidden size: `base` for 384, a quarter of it for 768, at most 3 times it."""
    return base * min((384 / width) ** 2, 3.0)


def head_learning_rate(width: int) -> float:
    """The peak learning rate of a task head alone, and of LSTMs: 1e-3 for a hidden size of 384."""
    return 1e-3 * min(384 / width, 3.0)


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Set the learning rate of all groups; a group with a `share` gets that share of it."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalized updates, for matrices only: all directions of a matrix move by the same amount.

    A group's `parts` is the number of matrices in each of its parameters, 3 for a fused projection of queries, keys
    and values, or their sizes if these differ. Matrices of one shape are processed together, so a step takes a few
    large products however deep the model is, and it never waits for the device. Of a sharded model every process
    orthogonalizes its share of the matrices, which it collects from the others.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "parts": 1})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moves = [move for group in self.param_groups for move in self._moves(group)]
        if moves and is_sharded(moves[0].parameter):
            exchange = WholeMatrices([move.parameter for move in moves])
            whole = exchange.collect([move.direction for move in moves])
            updates = [torch.zeros_like(matrix) for matrix in whole]
            owned = [moves[k] for k in exchange.owned]
            _add_orthogonalized(
                [
                    replace(move, parameter=update, direction=matrix)
                    for move, update, matrix in zip(owned, updates, whole, strict=True)
                ]
            )
            torch._foreach_add_([local_part(move.parameter) for move in moves], exchange.distribute(updates))
        else:
            _add_orthogonalized(moves)
        return loss

    def _moves(self, group: dict[str, Any]) -> list[_Move]:
        """The parameters of a group, after weight decay, with their Nesterov momentum."""
        parameters = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return []
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        gradients = [local_part(p.grad) for p in parameters]
        buffers = [local_part(self.state[p]["momentum_buffer"]) for p in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, buffers, group["momentum"])
        torch._foreach_mul_([local_part(p) for p in parameters], 1 - group["lr"] * group["weight_decay"])
        return [
            _Move(parameter, direction, group["parts"], group["lr"])
            for parameter, direction in zip(parameters, ahead, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class _Move:
    """A parameter of so many matrices, and the direction in which it moves, in the rows of this process."""

    parameter: Tensor
    direction: Tensor
    parts: int | tuple[int, ...]
    learning_rate: float


def _add_orthogonalized(moves: Iterable[_Move]) -> None:
    """Move each parameter along its orthogonalized direction; matrices of one shape are processed together."""
    by_shape: dict[tuple[torch.Size, float], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for move in moves:
        for matrix, direction in zip(
            _split(move.parameter, move.parts), _split(move.direction, move.parts), strict=True
        ):
            by_shape[matrix.shape, move.learning_rate].append((matrix, direction))
    for (shape, rate), pairs in by_shape.items():
        updates = orthogonalize(torch.stack([direction for _, direction in pairs])).to(pairs[0][0].dtype)
        # An orthogonal matrix has a root mean square of 1/sqrt(its longer side).
        scale = ADAM_RMS * math.sqrt(max(shape))
        torch._foreach_add_([matrix for matrix, _ in pairs], list(updates.unbind()), alpha=-rate * scale)


def _split(parameter: Tensor, parts: int | tuple[int, ...]) -> tuple[Tensor, ...]:
    return parameter.chunk(parts) if isinstance(parts, int) else torch.split(parameter, list(parts))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Approximate the nearest orthogonal matrix of each, (N, rows, columns): singular values end near 1.

    The Newton-Schulz iteration needs matrix products only, for which bfloat16 suffices on a GPU.
    """
    if matrices.shape[-2] > matrices.shape[-1]:  # the products are smaller on the shorter side
        return orthogonalize(matrices.mT).mT.contiguous()
    x: Tensor = matrices / torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    x = x.bfloat16() if x.is_cuda else x
    a, b, c = QUINTIC
    for _ in range(STEPS):  # x <- a x + b (x x') x + c (x x')(x x') x
        square = x @ x.mT
        square = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, square, x, beta=a)
    return x


def _matrices(model: nn.Module) -> dict[nn.Parameter, int | tuple[int, ...]]:
    """The weight matrices inside the model's layers, and how many matrices each holds, or their sizes."""
    found: dict[nn.Parameter, int | tuple[int, ...]] = {}
    for stack in model.modules():
        for module in stack.modules() if isinstance(stack, Stack) else ():
            if isinstance(module, FusedProjection):
                found[module.get_parameter("weight")] = 3 if len(set(module.sizes)) == 1 else module.sizes
            elif isinstance(module, FeedForward) and module.gated:
                found[module.inner.get_parameter("weight")] = 2
            elif isinstance(module, nn.Linear):
                found.setdefault(module.get_parameter("weight"), 1)
    return {parameter: parts for parameter, parts in found.items() if parameter.requires_grad}
