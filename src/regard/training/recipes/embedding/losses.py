"""Losses of sentence vectors (B, W). Vectors need not be normalized: all losses compare cosines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

IMPOSSIBLE = -1e4  # a logit whose probability is 0, without the NaNs of infinity


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """The cosine of each vector of `first` with each of `second`, (B, C)."""
    return F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).mT


def ranking_loss(
    anchors: Tensor, candidates: Tensor, *, temperature: float, not_negative: Tensor | None = None
) -> Tensor:
    """InfoNCE: anchor i should be closest to candidate i among all candidates of the batch.

    This is sentence-transformers' MultipleNegativesRankingLoss with scale 1/temperature. `candidates` (C, W) start with
    the positives; hard negatives may follow. `not_negative` (B, C) marks candidates that do not count as negatives,
    because they are positives too.
    """
    logits = cosines(anchors, candidates) / temperature
    if not_negative is not None:
        logits = logits.masked_fill(not_negative, IMPOSSIBLE)
    return F.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device))


def cosent_loss(first: Tensor, second: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """CoSENT (Su 2022): a pair with a higher score should have a higher cosine.

    log(1 + sum over all pairs of pairs with score_i > score_j of exp((cosine_j - cosine_i) / temperature)): only the
    order of the scores counts, which is also what Spearman's correlation measures, so any scale of scores will do.
    """
    cosine = F.cosine_similarity(first, second) / temperature
    difference = cosine[None, :] - cosine[:, None]  # of j and i
    wrong = difference.masked_fill(scores[:, None] <= scores[None, :], -torch.inf)
    return torch.logsumexp(torch.cat([wrong.flatten(), wrong.new_zeros(1)]), dim=0)


def distillation_losses(
    vectors: Tensor, targets: Tensor, *, temperature: float, teacher_temperature: float
) -> dict[str, Tensor]:
    """Losses of vectors (B, W) against a teacher's vectors of the same texts, which must have the same size.

    "cosine": the distance of the two vectors of a text. "contrastive": the student's vector should be closest to the
    teacher's vector of the same text. "similarity": see `similarity_loss`.
    """
    return {
        "cosine": (1 - F.cosine_similarity(vectors, targets)).mean(),
        "contrastive": ranking_loss(vectors, targets, temperature=temperature),
        "similarity": similarity_loss(vectors, targets, temperature=teacher_temperature),
    }


def similarity_loss(vectors: Tensor, targets: Tensor, *, temperature: float) -> Tensor:
    """The KL divergence between the teacher's and the student's distribution over the other texts of the batch.

    The distributions are softmaxes of cosines, so the two vectors of a text may have different sizes.
    """
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    student, teacher = (
        (cosines(side, side) / temperature).masked_fill(itself, IMPOSSIBLE).log_softmax(-1)
        for side in (vectors, targets)
    )
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean")


def matryoshka_loss(
    loss: Callable[[Sequence[Tensor]], Tensor], columns: Sequence[Tensor], sizes: Sequence[int]
) -> Tensor:
    """The sum of a loss over vectors that are truncated to each size (Kusupati et al. 2022)."""
    return torch.stack([loss([column[..., :size] for column in columns]) for size in sizes]).sum()
