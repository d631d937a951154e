"""Vectors of packed batches, and the loss that they are trained with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

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
from regard.training.recipes.embedding.losses import (
    cosent_loss,
    distillation_losses,
    matryoshka_loss,
    ranking_loss,
    similarity_loss,
)

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
        inputs = pack([texts], rows, max_length=max_length).to(device).inputs
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

    def __init__(self, model: nn.Module, settings: EmbeddingObjectiveSection, *, columns: int, max_length: int) -> None:
        super().__init__()
        self.model, self.settings, self.columns, self.max_length = model, settings, columns, max_length

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
            vectors = pool_scattered(hidden, owner, lengths)
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
