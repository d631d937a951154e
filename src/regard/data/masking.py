"""Masked language modelling: which tokens are hidden, and what stands in their place.

Knows ids and random numbers; knows no text and no model. Works where the ids are, CPU or GPU, without waiting for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["IGNORED", "Masked", "Masking"]

IGNORED = -100  # a target that no loss looks at


@dataclass(frozen=True, eq=False)
class Masked:
    """A batch with holes: `ids` as the model sees them; `places` (M,) of the holes in the flat batch; their `targets`."""

    ids: Tensor
    places: Tensor
    targets: Tensor


class Masking:
    """Choose `rate` of the tokens that may be chosen; of these `replace` gives the shares of [MASK], random, kept.

    `special` (V,) marks the ids that are never chosen, nor put in a place by chance. `continues` (V,) marks those that
    go on with a word ("##ing"); given it, words are chosen and hidden whole.
    """

    def __init__(
        self,
        special: Tensor,
        *,
        mask: int,
        rate: float = 0.15,
        replace: tuple[float, float, float] = (0.8, 0.1, 0.1),
        continues: Tensor | None = None,
    ) -> None:
        self.special, self.mask, self.rate, self.replace, self.continues = special, mask, rate, replace, continues
        self.ordinary = (~special).nonzero().squeeze(1)

    def __call__(self, ids: Tensor, generator: torch.Generator, *, holes: int | None = None) -> Masked:
        """`holes` says how many places to return, so that batches have one shape; those too many are `IGNORED`.

        Without it they are as many as `rate` asks, for which the ids' device must be waited for.
        """
        flat = ids.reshape(-1)
        barred = self.special[flat]
        wanted = ((~barred).sum() * self.rate).round().long().clamp(min=1)
        holes = int(wanted) if holes is None else min(holes, len(flat))
        chance = torch.rand(len(flat), generator=generator, device=flat.device)
        if self.continues is not None:
            chance = self._by_word(flat, chance)
        order = torch.where(barred, 2.0, chance).argsort(stable=True)[: holes + 1]
        places = order[:holes]
        chosen = (torch.arange(holes, device=flat.device) < wanted) & ~barred[places]
        if self.continues is not None and holes < len(flat):
            chosen &= self._whole(chance[order], wanted)
        originals = flat[places]
        kind = torch.rand(holes, generator=generator, device=flat.device)
        other = torch.randint(len(self.ordinary), (holes,), generator=generator, device=flat.device)
        hidden, random = self.replace[0], self.replace[0] + self.replace[1]
        shown = torch.where(kind < hidden, self.mask, torch.where(kind < random, self.ordinary[other], originals))
        seen = flat.clone()
        seen[places] = torch.where(chosen, shown.to(flat.dtype), originals)
        return Masked(seen.view_as(ids), places, torch.where(chosen, originals, IGNORED).long())

    def _by_word(self, flat: Tensor, chance: Tensor) -> Tensor:
        """The pieces of a word share the chance of its first."""
        assert self.continues is not None
        begins = ~self.continues[flat] | self.special[flat]
        begins[0] = True
        return chance[begins.cumsum(0).sub(1).clamp(min=0)]

    def _whole(self, chance: Tensor, wanted: Tensor) -> Tensor:
        """The last word may have found no room for all of its pieces: then none is chosen."""
        behind = chance[wanted.clamp(max=len(chance) - 1)]
        return chance[:-1] != behind
