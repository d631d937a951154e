"""The attention map that is shown for a text, and the logits when the map or the words it points at are changed.

The map is one row of one layer: of one head, or the mean of all heads. B copies, T tokens, O labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError
from regard.inference.masked_lm import BATCH_TOKENS
from regard.interpret.attribution.probe import Probe
from regard.models.family import can
from regard.nn import Site, record

Change = Callable[[Tensor, slice], Tensor]  # maps (B, H, T, T) of some copies, and which copies -> the new maps


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The map of `layer` and `head` (None for the mean of all heads).

    `weights` (T,) is how much the token at `position` attends to each token, `words` the positions of the tokens that
    are not special.
    """

    probe: Probe
    layer: int
    head: int | None
    position: int
    weights: Tensor
    words: Tensor

    def permute(self, draws: int, generator: torch.Generator) -> Tensor:
        """Logits (B, O) with randomly permuted maps: weights move among the tokens that may be attended to."""
        count = len(self.weights)
        keys = torch.rand(draws, count, generator=generator).to(self.weights.device)
        hidden = ~self._allowed()

        def change(maps: Tensor, copies: slice) -> Tensor:
            order = keys[copies, None, :].expand(-1, count, -1).masked_fill(hidden, torch.inf).argsort(-1)
            return maps.gather(-1, order[:, None].expand(maps.shape))

        return self._edited(change, draws)

    def flatten(self) -> Tensor:
        """Logits (1, O) with equal weights on all tokens that may be attended to."""
        allowed = self._allowed()
        return self._edited(lambda maps, _: (allowed / allowed.sum(-1, keepdim=True)).to(maps.dtype).expand_as(maps), 1)

    def zero_values(self, positions: Tensor) -> Tensor:
        """Logits (B, O) with the values of the tokens at `positions` (B, K) set to zero for these maps.

        A weight times a value of zero is zero, so the weights are set to zero instead.
        """
        keep = ~self._marked(positions)
        return self._edited(lambda maps, copies: maps * keep[copies, None, None].to(maps.dtype), len(positions))

    def remove(self, positions: Tensor) -> Tensor:
        """Logits (B, O) of the text without the tokens at `positions` (B, K)."""
        return self._subsets(~self._marked(positions))

    def keep_only(self, positions: Tensor) -> Tensor:
        """Logits (B, O) of the words at `positions` (B, K) alone, with the special tokens around them."""
        words = torch.zeros(len(self.weights), dtype=torch.bool, device=positions.device)
        words[self.words] = True
        return self._subsets(self._marked(positions) | ~words)

    def _marked(self, positions: Tensor) -> Tensor:
        marks = torch.zeros(len(positions), len(self.weights), dtype=torch.bool, device=positions.device)
        return marks.scatter_(1, positions, True)

    def _allowed(self) -> Tensor:
        count = len(self.weights)
        every = torch.ones(count, count, dtype=torch.bool, device=self.weights.device)
        return every.tril() if can(self.probe.encoder, "causal-lm") else every

    def _subsets(self, keep: Tensor) -> Tensor:
        return torch.cat([self.probe.logits_of_subsets(part)[:, 0] for part in torch.split(keep, self._batch_size())])

    def _edited(self, change: Change, copies: int) -> Tensor:
        logits = []
        for start in range(0, copies, self._batch_size()):
            part = slice(start, min(start + self._batch_size(), copies))
            with record(self.probe.encoder, edit=_ChangedMaps(self.layer, self.head, change, part)):
                logits.append(self.probe.logits(self.probe.ids.expand(part.stop - part.start, -1))[:, 0])
        return torch.cat(logits)

    def _batch_size(self) -> int:
        return max(1, BATCH_TOKENS[self.weights.device.type] // len(self.weights))


@dataclass(frozen=True, eq=False)
class _ChangedMaps:
    layer: int
    head: int | None
    change: Change
    copies: slice

    def __call__(self, weights: Tensor, site: Site) -> Tensor:
        if site.layer != self.layer:
            return weights
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        weights = weights.clone()
        weights[:, heads] = self.change(weights[:, heads], self.copies)
        return weights


def attention_map(probe: Probe, *, layer: int | None = None, head: int | None = None) -> AttentionMap:
    """The map of a layer (default: the last) and a head (default: the mean of all), both counted from 0.

    It is the row of the token whose state the model reads: the first blank, or the token that stands for the text.
    """
    layer = probe.num_layers - 1 if layer is None else layer
    for what, index, count in (("layer", layer, probe.num_layers), ("head", head, probe.num_heads)):
        if index is not None and not 0 <= index < count:
            raise InputError(f"{what} is {index}, and this model has {count}: 0 to {count - 1}")
    with record(probe.encoder) as tape:
        probe.logits()
        maps = tape.attention()[layer][0].double()
    position = probe.positions[0] if probe.task == "fill" else probe.summary_position
    weights = maps[:, position].mean(0) if head is None else maps[head, position]
    words = [position for position, special in enumerate(probe.special) if not special]
    return AttentionMap(probe, layer, head, position, weights, torch.tensor(words, device=weights.device))
