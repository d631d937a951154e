"""Weights of epochs on disk: those of the best epoch, and those of the last ones, which are averaged at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.training.checkpoint import Checkpoints


def weight_files(*, recent: int) -> list[str]:
    """The manifest's entries for the folder of `EpochWeights`."""
    return [f"{name}/step-*/" for name in ("best", *(f"recent-{slot}" for slot in range(recent)))]


class EpochWeights:
    """Folders `best`, and `recent-I` for the last `recent` epochs, used in rotation."""

    def __init__(self, folder: Path, *, recent: int) -> None:
        self._best = Checkpoints(folder / "best", keep=1)
        self._recent = [Checkpoints(folder / f"recent-{slot}", keep=1) for slot in range(recent)]

    def save_best(self, epoch: int, model: nn.Module) -> None:
        self._best.save(epoch, _weights(model), {})

    def save_recent(self, epoch: int, model: nn.Module) -> None:
        self._recent[epoch % len(self._recent)].save(epoch, _weights(model), {})

    def load_best(self, epoch: int, model: nn.Module) -> None:
        _load(model, _read(self._best, epoch))

    def load_average(self, epochs: Sequence[int], model: nn.Module) -> None:
        """Give the model the mean weights of these epochs, which must be among the recent ones."""
        total: dict[str, Tensor] = {}
        for epoch in epochs:
            for name, tensor in _read(self._recent[epoch % len(self._recent)], epoch).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        _load(model, {name: tensor / len(epochs) for name, tensor in total.items()})


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _read(checkpoints: Checkpoints, epoch: int) -> dict[str, Tensor]:
    damaged: list[str] = []
    found = checkpoints.latest(on_damaged=damaged.append)
    if found is None or found.step != epoch:
        reason = "; ".join(damaged) or f"{checkpoints.folder}: the weights of epoch {epoch} are gone"
        raise RegardError(f"{reason}. Put a copy of them back, or start again in another folder")
    return found.tensors


def _load(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
