"""The attention map that is shown of a classified text: changing it, or the words it points at, and asking again.

Knows one map (a layer, and a head of it or the mean of all) and the logits of copies of the text. Judges nothing.
B copies, T tokens, O labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checkpoints.ready import BUDGET
from regard.errors import InputError
from regard.interpret.attribution.probe import Probe
from regard.models import Gpt
from regard.nn import Site, record

__all__ = ["AttentionMap", "attention_map"]

Change = Callable[[Tensor, slice], Tensor]  # maps (B, H, T, T) of some copies, and which copies -> the maps instead


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The map of `layer` and `head`, None for the mean of all heads, as it is shown of a classified text.

    `weights` (T,) is how much the token that speaks for the text (the first of a BERT, the last of a GPT) looks at each
    token, `words` the places of the tokens that are no special ones.
    """

    probe: Probe
    layer: int
    head: int | None
    weights: Tensor
    words: Tensor

    def permute(self, draws: int, generator: torch.Generator) -> Tensor:
        """The logits (B, O) with the shown maps in disorder: what each token may look at changes places at random."""
        count = len(self.weights)
        keys = torch.rand(draws, count, generator=generator).to(self.weights.device)
        hidden = ~self._allowed()

        def change(maps: Tensor, copies: slice) -> Tensor:
            order = keys[copies, None, :].expand(-1, count, -1).masked_fill(hidden, torch.inf).argsort(-1)
            return maps.gather(-1, order[:, None].expand(maps.shape))

        return self._edited(change, draws)

    def flatten(self) -> Tensor:
        """The logits (1, O) with the same weight on all that a token may look at."""
        allowed = self._allowed()
        return self._edited(lambda maps, _: (allowed / allowed.sum(-1, keepdim=True)).to(maps.dtype).expand_as(maps), 1)

    def zero_values(self, places: Tensor) -> Tensor:
        """The logits (B, O) with the values of some tokens, by their places (B, K), zero for the shown maps.

        A weight times a value of zero is zero, so the weights are changed in their stead.
        """
        keep = ~self._marked(places)
        return self._edited(lambda maps, copies: maps * keep[copies, None, None].to(maps.dtype), len(places))

    def remove(self, places: Tensor) -> Tensor:
        """The logits (B, O) of the text without some tokens, by their places (B, K)."""
        return self._parts(~self._marked(places))

    def keep_only(self, places: Tensor) -> Tensor:
        """The logits (B, O) of some words alone, by their places (B, K), with the special tokens around them."""
        words = torch.zeros(len(self.weights), dtype=torch.bool, device=places.device)
        words[self.words] = True
        return self._parts(self._marked(places) | ~words)

    def _marked(self, places: Tensor) -> Tensor:
        marks = torch.zeros(len(places), len(self.weights), dtype=torch.bool, device=places.device)
        return marks.scatter_(1, places, True)

    def _allowed(self) -> Tensor:
        count = len(self.weights)
        every = torch.ones(count, count, dtype=torch.bool, device=self.weights.device)
        return every.tril() if isinstance(self.probe.encoder, Gpt) else every

    def _parts(self, keep: Tensor) -> Tensor:
        return torch.cat([self.probe.logits_of_subsets(some)[:, 0] for some in torch.split(keep, self._at_once())])

    def _edited(self, change: Change, copies: int) -> Tensor:
        found = []
        for start in range(0, copies, self._at_once()):
            some = slice(start, min(start + self._at_once(), copies))
            with record(self.probe.encoder, edit=_Changed(self.layer, self.head, change, some)):
                found.append(self.probe.logits(self.probe.ids.expand(some.stop - some.start, -1))[:, 0])
        return torch.cat(found)

    def _at_once(self) -> int:
        return max(1, BUDGET[self.weights.device.type] // len(self.weights))


@dataclass(frozen=True, eq=False)
class _Changed:
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


def attention_map(
    trial: Probe, *, layer: int | None = None, head: int | None = None, token: int | None = None
) -> AttentionMap:
    """The map of a classified text: by default the last layer's, the mean over its heads. Layers and heads from 0.

    `token` is who looks, where that is not the token that speaks for the text.
    """
    layer = trial.num_layers - 1 if layer is None else layer
    for what, number, count in (("layer", layer, trial.num_layers), ("head", head, trial.num_heads)):
        if number is not None and not 0 <= number < count:
            raise InputError(f"{what} {number} is asked for, and this model has {count}: 0 to {count - 1}")
    with record(trial.encoder) as tape:
        trial.logits()
        maps = tape.attention()[layer][0].double()
    speaker = -1 if isinstance(trial.encoder, Gpt) else 0
    row = maps[:, speaker if token is None else token]
    weights = row.mean(0) if head is None else row[head]
    words = torch.tensor([place for place, special in enumerate(trial.special) if not special], device=weights.device)
    return AttentionMap(trial, layer, head, weights, words)
