"""Probing heads on frozen layers, one per combination of layers, trained together; all linear, or all BiLSTMs.

Shapes: L layers, K combinations, N items, W width, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from regard.interpret.probes.layer_combinations import LayerCombination
from regard.nn.masks import Packed
from regard.nn.recurrent import Recurrent
from regard.nn.scalar_mix import ScalarMix


class LayerFeatures(nn.Module):
    """HiddenStates (L, N, W) to what each combination gives a head; every feature has mean 0 and deviation 1 in
    training.

    A sum is made of the states as they are, a concatenation and a mix of states that were scaled so.
    """

    mean: Tensor
    deviation: Tensor
    sums: Tensor

    def __init__(self, combinations: Sequence[LayerCombination], *, layers: int, width: int) -> None:
        super().__init__()
        self.combinations = tuple(combinations)
        self.width = width
        summed = list(dict.fromkeys(one.layers for one in combinations if one.operation == "sum"))
        self.slots: dict[tuple[str, tuple[int, ...]], int] = {("only", (number,)): number for number in range(layers)}
        self.slots |= {("sum", chosen): layers + index for index, chosen in enumerate(summed)}
        sums = torch.zeros(len(summed), layers)
        for row, chosen in zip(sums, summed, strict=True):
            row[list(chosen)] = 1
        self.register_buffer("sums", sums)
        self.register_buffer("mean", torch.zeros(len(self.slots), 1, width))
        self.register_buffer("deviation", torch.ones(len(self.slots), 1, width))
        self.mixes = nn.ModuleList(ScalarMix(len(one.layers)) for one in combinations if one.operation == "mix")

    def raw(self, states: Tensor) -> Tensor:
        """All layers and all sums, (slots, N, W)."""
        return torch.cat([states, torch.einsum("sl,lnw->snw", self.sums, states)]) if len(self.sums) else states

    def forward(self, states: Tensor) -> list[Tensor]:
        """For each combination (N, W), or wider for a concatenation."""
        slots = (self.raw(states) - self.mean) / self.deviation
        mixes = iter(self.mixes)
        features = []
        for one in self.combinations:
            match one.operation:
                case "concat":
                    features.append(torch.cat([slots[number] for number in one.layers], dim=-1))
                case "mix":
                    features.append(next(mixes)([slots[number] for number in one.layers]))
                case _:
                    features.append(slots[self.slots[one.operation, one.layers]])
        return features

    @property
    def weights(self) -> list[float]:
        """The weights of the layers in the first mix; empty without one."""
        return [weight for mix in list(self.mixes)[:1] for weight in cast(ScalarMix, mix).s.softmax(0).tolist()]

    def feature_width(self, one: LayerCombination) -> int:
        return self.width * (len(one.layers) if one.operation == "concat" else 1)


class LinearHeads(nn.Module):
    """Logits (K, N, C) of a linear layer on each combination.

    Everything, also scaling and sums, is linear in the states: they are multiplied once by matrices that contain all of
    it, and no feature is computed. A piece is the contribution of one layer to one combination.
    """

    piece: Tensor
    slot: Tensor

    def __init__(self, features: LayerFeatures, classes: int) -> None:
        super().__init__()
        self.features, self.classes = features, classes
        self.columns = [0 if one.operation == "only" else -1 for one in features.combinations]
        for column, index in enumerate((i for i, c in enumerate(self.columns) if c < 0), start=1):
            self.columns[index] = column
        pieces, slots, rows = [], [], 0
        for one, column in zip(features.combinations, self.columns, strict=True):
            for number, layer in enumerate(one.layers):
                pieces.append((layer, column, rows + (number if one.operation == "concat" else 0)))
                slots.append(features.slots["sum", one.layers] if one.operation == "sum" else layer)
            rows = pieces[-1][2] + 1
        self.register_buffer("piece", torch.tensor(pieces).T)  # layer, column and row of the weight
        self.register_buffer("slot", torch.tensor(slots))
        self.weight = nn.Parameter(torch.zeros(rows, features.width, classes))
        self.bias = nn.Parameter(torch.zeros(len(features.combinations), classes))

    def forward(self, states: Tensor, layout: Packed) -> Tensor:
        layer, column, row = self.piece
        scale = self._mix_weights()[:, None, None] / self.features.deviation[self.slot].transpose(1, 2)
        empty = states.new_zeros(len(states), max(self.columns) + 1, self.features.width, self.classes)
        matrices = empty.index_put((layer, column), scale * self.weight[row]).transpose(1, 2).flatten(2)
        center = self.features.mean[: len(states)]
        product = torch.bmm(states, matrices) - torch.bmm(center, matrices)
        product = product.view(*product.shape[:2], -1, self.classes)
        alone, joined = product[:, :, 0], product.sum(0)
        logits = [
            alone[one.layers[0]] if column == 0 else joined[:, column]
            for one, column in zip(self.features.combinations, self.columns, strict=True)
        ]
        return torch.stack(logits) + self.bias[:, None]

    def _mix_weights(self) -> Tensor:
        """The factor of a mix for each piece: 1 without a mix."""
        mixes = iter(self.features.mixes)
        parts = []
        for one in self.features.combinations:
            if one.operation == "mix":
                mix = cast(ScalarMix, next(mixes))
                parts.append(mix.gamma * mix.s.softmax(0))
            else:
                parts.append(self.bias.new_ones(len(one.layers)))
        return torch.cat(parts)


class BiLstmHeads(nn.Module):
    """Logits (K, N, C) of a two-layer BiLSTM over the items of each example, as wide as the model.

    With `pooled` they are (K, B, C), from the mean of the BiLSTM outputs over an example.
    """

    def __init__(self, features: LayerFeatures, classes: int, *, pooled: bool) -> None:
        super().__init__()
        self.features, self.pooled = features, pooled
        units = features.width + features.width % 2
        self.lstms = nn.ModuleList(
            Recurrent(features.feature_width(one), units, depth=2, bidirectional=True) for one in features.combinations
        )
        self.outputs = nn.ModuleList(nn.Linear(units, classes) for _ in features.combinations)

    def forward(self, states: Tensor, layout: Packed) -> Tensor:
        logits = []
        for features, lstm, output in zip(self.features(states), self.lstms, self.outputs, strict=True):
            hidden, _ = lstm(features, layout)
            if self.pooled:
                hidden = torch.stack([part.mean(0) for part in hidden.split(list(layout.lengths))])
            logits.append(output(hidden))
        return torch.stack(logits)
