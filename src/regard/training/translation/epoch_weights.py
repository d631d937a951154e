"""The weights of some epochs on disk: the best one's, and the last ones', which are averaged at the end.

Knows a model's parameters and folders of checkpoints. Knows no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.training.checkpoint import Checkpoints

__all__ = ["EpochWeights", "kept_files"]


def kept_files(*, recent: int) -> list[str]:
    """What `EpochWeights` writes into its folder, as entries of a manifest."""
    return [f"{name}/step-*/" for name in ("best", *(f"recent-{place}" for place in range(recent)))]


class EpochWeights:
    """In `folder`: `best`, and a place for each of the `recent` last epochs, which they take in turn."""

    def __init__(self, folder: Path, *, recent: int) -> None:
        self._best = Checkpoints(folder / "best", keep=1)
        self._recent = [Checkpoints(folder / f"recent-{place}", keep=1) for place in range(recent)]

    def save_best(self, epoch: int, model: nn.Module) -> None:
        self._best.save(epoch, _weights(model), {})

    def save_recent(self, epoch: int, model: nn.Module) -> None:
        self._recent[epoch % len(self._recent)].save(epoch, _weights(model), {})

    def put_best(self, epoch: int, model: nn.Module) -> None:
        _put(model, _read(self._best, epoch))

    def put_average(self, epochs: Sequence[int], model: nn.Module) -> None:
        """Give the model the mean of what it weighed after these epochs, which must be among the last."""
        total: dict[str, Tensor] = {}
        for epoch in epochs:
            for name, tensor in _read(self._recent[epoch % len(self._recent)], epoch).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        _put(model, {name: tensor / len(epochs) for name, tensor in total.items()})


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _read(place: Checkpoints, epoch: int) -> dict[str, Tensor]:
    damaged: list[str] = []
    found = place.latest(on_damaged=damaged.append)
    if found is None or found.step != epoch:
        reason = "; ".join(damaged) or f"{place.folder}: the weights of epoch {epoch} are gone"
        raise RegardError(f"{reason}. Put a copy of them back, or start again in another folder")
    return found.tensors


def _put(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
