"""Masked language modeling: selects tokens and replaces them with [MASK], a random token, or the token itself.

Runs on the device of the ids, without synchronizing with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE_INDEX = -100  # targets that the loss ignores
NEVER = 2.0  # sorts after every score, which is below 1


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """Masked `ids`, the selected `positions` (M,) in the flat batch, and the original ids there as `targets`."""

    ids: Tensor
    positions: Tensor
    targets: Tensor


class Masking:
    """Select `rate` of the tokens; `replace` gives the fractions that become [MASK], a random token, or stay.

    `special` (V,) marks ids that are neither selected nor used as random replacements. `continues` (V,) marks tokens
    that continue a word ("##ing"); if it is given, whole words are masked, as many as fit into `rate`.
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

    def __call__(self, ids: Tensor, generator: torch.Generator, *, num_positions: int | None = None) -> MaskedBatch:
        """Mask ids (B, T) or (N,); without whole words, at least one token is masked if there is one to select.

        `num_positions` fixes the number of returned positions, so that all batches have the same shape; surplus ones
        have the target `IGNORE_INDEX`. Without it, the number depends on `rate`, and computing it synchronizes with the
        device.
        """
        flat = ids.reshape(-1)
        excluded = self.special[flat]
        count = ((~excluded).sum() * self.rate).round().long().clamp(min=1)
        size = int(count) if num_positions is None else min(num_positions, len(flat))
        scores = torch.rand(len(flat), generator=generator, device=flat.device)
        if self.continues is not None:
            scores = self._word_scores(ids, scores, self.continues)
        # The tokens with the lowest scores are selected.
        scores, order = scores.masked_fill(excluded, NEVER).sort(stable=True)
        positions = order[:size]
        if self.continues is None:
            selected = (torch.arange(size, device=flat.device) < count) & (scores[:size] < NEVER)
        else:  # the pieces of a word have the same score: if the next score is equal, the last word does not fit
            selected = scores[:size] < F.pad(scores, (0, 1), value=NEVER)[count.clamp(max=size)[None]]
        originals = flat[positions]
        draws = torch.rand(size, generator=generator, device=flat.device)
        indices = torch.randint(len(self.ordinary), (size,), generator=generator, device=flat.device)
        masked, random = self.replace[0], self.replace[0] + self.replace[1]
        replaced = torch.where(
            draws < masked, self.mask, torch.where(draws < random, self.ordinary[indices], originals)
        )
        inputs = flat.clone()
        inputs[positions] = torch.where(selected, replaced.to(flat.dtype), originals)
        return MaskedBatch(inputs.view_as(ids), positions, torch.where(selected, originals, IGNORE_INDEX).long())

    @staticmethod
    def _word_scores(ids: Tensor, scores: Tensor, continues: Tensor) -> Tensor:
        """Give all tokens of a word the same score. Words do not continue in the next row."""
        starts = ~continues[ids]
        starts[..., 0] = True
        return scores[starts.flatten().cumsum(0) - 1]
