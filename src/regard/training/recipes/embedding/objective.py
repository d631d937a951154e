"""Vectors of packed batches, and the losses that they are trained with, which all compare cosines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.device import autocast_dtype
from regard.events import Progress
from regard.nn.masks import MAX_SEQUENCES, Packed
from regard.nn.pooling import pool_scattered
from regard.nn.training import evaluation_mode
from regard.training.events import Events
from regard.training.recipes.embedding.config import EmbeddingObjectiveSection
from regard.training.recipes.embedding.data import TokenizedTexts, pack

IMPOSSIBLE = -1e4  # a logit whose probability is 0, without the NaNs of infinity
TOKENS = defaultdict(lambda: 1 << 18, cpu=4096)  # per batch of a teacher, by device


def run_packed(model: nn.Module, ids: Tensor, starts: Tensor, positions: Tensor, *, max_length: int) -> Tensor:
    """The last hidden state of each token of a packed batch, (N, W)."""
    # On a CPU the lengths group texts of equal length; a GPU kernel reads the starts.
    sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
    hidden: Tensor = model(ids, Packed(sizes, starts, positions, max_length))
    return hidden


def teacher_vectors(
    model: nn.Module, texts: TokenizedTexts, *, pooling: str, max_length: int, device: torch.device
) -> Events[NDArray[np.float16]]:
    """The normalized vectors of a teacher, one per text; bf16 on a GPU."""
    model = model.to(device)
    size: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
    vectors = np.empty((len(texts), size), dtype=np.float16)
    order = np.argsort(texts.lengths, kind="stable")
    # A text counts as a few tokens at least, so that no batch has more texts than the kernels take.
    least = -(-TOKENS[device.type] // MAX_SEQUENCES)
    groups = np.cumsum(np.maximum(texts.lengths[order], least)) // TOKENS[device.type]
    autocast = autocast_dtype("auto", device)
    done = 0
    for rows in np.split(order, np.flatnonzero(np.diff(groups)) + 1):
        packed = pack([texts], rows, max_length=max_length)
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in packed.items()}
        owner, lengths = inputs.pop("owner"), inputs.pop("lengths")
        with evaluation_mode(model), torch.autocast(device.type, autocast, enabled=autocast is not None):
            hidden = run_packed(model, **inputs, max_length=max_length)
            found = F.normalize(pool_scattered(hidden, owner, lengths, pooling), dim=-1)
        vectors[rows] = found.half().cpu().numpy()
        done += len(rows)
        yield Progress(stage="embedding with the teacher", done=done, total=len(texts))
    return vectors


class EmbeddingObjective(nn.Module):
    """The loss of a batch of pairs, triplets or scored pairs, or of texts with a teacher's vectors.

    With Matryoshka sizes the loss is summed over truncated vectors. A teacher's vectors are not trained to be
    truncated, so there the smaller sizes learn the similarities of the batch only.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: EmbeddingObjectiveSection,
        *,
        columns: int,
        max_length: int,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.model, self.settings, self.columns, self.max_length = model, settings, columns, max_length
        self.pooling = pooling

    def forward(
        self,
        ids: Tensor,
        starts: Tensor,
        positions: Tensor,
        owner: Tensor,
        lengths: Tensor,
        scores: Tensor | None = None,
        targets: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> dict[str, Tensor]:
        hidden = run_packed(self.model, ids, starts, positions, max_length=self.max_length)
        with torch.autocast(ids.device.type, enabled=False):  # similarities are divided by a small temperature
            vectors = pool_scattered(hidden, owner, lengths, self.pooling)
            if targets is not None:
                return self._distillation(vectors, targets.float())
            columns = vectors.chunk(self.columns)
            sizes = self.settings.matryoshka or (vectors.shape[-1],)
            temperature = self.settings.temperature
            if scores is not None:

                def ordered(columns: Sequence[Tensor]) -> Tensor:
                    return cosent_loss(columns[0], columns[1], scores, temperature=temperature)

                return {"loss": matryoshka_loss(ordered, columns, sizes)}
            same = None if keys is None else same_texts(keys)

            def ranked(columns: Sequence[Tensor]) -> Tensor:
                anchors, *candidates = columns
                return ranking_loss(anchors, torch.cat(candidates), temperature=temperature, not_negative=same)

            return {"loss": matryoshka_loss(ranked, columns, sizes)}

    def _distillation(self, vectors: Tensor, targets: Tensor) -> dict[str, Tensor]:
        settings = self.settings
        weights = {
            "cosine": settings.cosine_weight,
            "contrastive": settings.contrastive_weight,
            "similarity": settings.similarity_weight,
        }
        temperature = settings.teacher_temperature
        if vectors.shape == targets.shape:
            losses = distillation_losses(
                vectors, targets, temperature=settings.temperature, teacher_temperature=temperature
            )
        else:  # only the similarities of texts can be compared
            losses = {"similarity": similarity_loss(vectors, targets, temperature=temperature)}
        losses["loss"] = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        for size in settings.matryoshka:
            if size < vectors.shape[-1]:
                losses[f"similarity_{size}"] = similarity_loss(vectors[:, :size], targets, temperature=temperature)
                losses["loss"] = losses["loss"] + settings.similarity_weight * losses[f"similarity_{size}"]
        return losses


def same_texts(keys: Tensor) -> Tensor:
    """Candidates that are no negatives of an anchor, (B, C): equal to its positive, or a positive of an equal anchor.

    `keys` (columns, B) are numbers of texts.
    """
    anchors, positives, candidates = keys[0], keys[1], keys[1:].flatten()
    same = positives[:, None] == candidates[None, :]
    of_equal_anchors = anchors[:, None] == anchors[None, :]
    same[:, : len(anchors)] |= of_equal_anchors
    own = torch.eye(len(anchors), len(candidates), dtype=torch.bool, device=keys.device)
    return same & ~own


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
