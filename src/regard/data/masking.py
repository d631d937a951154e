"""Masked language modelling: which tokens are hidden, and what stands in their place.

Works where the ids are, CPU or GPU, without waiting for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["IGNORE_INDEX", "MaskedBatch", "Masking"]

IGNORE_INDEX = -100  # a target that no loss looks at
NEVER = 2.0  # behind every chance, which is below 1


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """A batch with holes: `ids` as the model sees them, the holes' `places` (M,) in the flat batch, their `targets`."""

    ids: Tensor
    places: Tensor
    targets: Tensor


class Masking:
    """Choose `rate` of the tokens that may be chosen; of these `replace` gives the shares of [MASK], random, kept.

    `special` (V,) marks the ids that are never chosen, nor put in a place by chance. `continues` (V,) marks those that
    go on with a word ("##ing"); given it, words are chosen and hidden whole, as many as `rate` has room for.
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

    def __call__(self, ids: Tensor, generator: torch.Generator, *, holes: int | None = None) -> MaskedBatch:
        """Make holes in ids (B, T) or (N,), at least one where a token may be chosen and words need not be whole.

        `holes` says how many places to return, so that batches have one shape; those too many are `IGNORED`. Without it
        they are as many as `rate` asks, for which the ids' device must be waited for.
        """
        flat = ids.reshape(-1)
        barred = self.special[flat]
        wanted = ((~barred).sum() * self.rate).round().long().clamp(min=1)
        holes = int(wanted) if holes is None else min(holes, len(flat))
        chance = torch.rand(len(flat), generator=generator, device=flat.device)
        if self.continues is not None:
            chance = self._of_words(ids, chance, self.continues)
        # The tokens of the smallest chances are chosen.
        chance, order = chance.masked_fill(barred, NEVER).sort(stable=True)
        places = order[:holes]
        if self.continues is None:
            chosen = (torch.arange(holes, device=flat.device) < wanted) & (chance[:holes] < NEVER)
        else:  # a word goes on behind the last hole if the chance there is still its own: then it has no room
            chosen = chance[:holes] < F.pad(chance, (0, 1), value=NEVER)[wanted.clamp(max=holes)[None]]
        originals = flat[places]
        kind = torch.rand(holes, generator=generator, device=flat.device)
        other = torch.randint(len(self.ordinary), (holes,), generator=generator, device=flat.device)
        hidden, random = self.replace[0], self.replace[0] + self.replace[1]
        shown = torch.where(kind < hidden, self.mask, torch.where(kind < random, self.ordinary[other], originals))
        seen = flat.clone()
        seen[places] = torch.where(chosen, shown.to(flat.dtype), originals)
        return MaskedBatch(seen.view_as(ids), places, torch.where(chosen, originals, IGNORE_INDEX).long())

    @staticmethod
    def _of_words(ids: Tensor, chance: Tensor, continues: Tensor) -> Tensor:
        """The chance of each token's word, the same for all its pieces. No word goes on into the next row."""
        begins = ~continues[ids]
        begins[..., 0] = True
        return chance[begins.flatten().cumsum(0) - 1]
