"""What a model is to learn from running text: the hidden words, whether B follows A, or the next word.

Knows models and losses; knows no text and no optimizer. `prepare` turns a portion into tensors of one shape, and the
module turns those into losses, so that it can be compiled and spread over processes as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.masking import IGNORED, Masking
from regard.models.bert import Bert
from regard.models.gpt import Gpt
from regard.nn import Layout, Packed, Padded
from regard.pretrain.portions import Portion

__all__ = ["Causal", "MaskedWords", "Objective", "word_loss"]

ALIGNED = 64  # GPUs multiply matrices faster whose sides are multiples of this


class Objective(nn.Module):
    """`forward` returns the loss to minimise under "loss", beside its parts by name."""

    model: nn.Module

    def prepare(self, portion: Portion, generator: torch.Generator) -> dict[str, Tensor]:
        """The keyword arguments of `forward`."""
        raise NotImplementedError


class MaskedWords(Objective):
    """BERT's: tell the hidden words from the words around them and, where portions are pairs, whether B follows A."""

    def __init__(self, model: Bert, masking: Masking, *, length: int) -> None:
        super().__init__()
        self.model, self.masking, self.length = model, masking, length

    def prepare(self, portion: Portion, generator: torch.Generator) -> dict[str, Tensor]:
        masked = self.masking(portion.ids, generator, holes=round(portion.ids.numel() * self.masking.rate))
        given = {
            "ids": masked.ids,
            "holes": masked.places,
            "targets": masked.targets,
            "segments": portion.segments,
            "labels": portion.labels,
            "starts": portion.starts,
            "places": portion.places,
        }
        return {name: value for name, value in given.items() if value is not None}

    def forward(
        self,
        ids: Tensor,
        holes: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        labels: Tensor | None = None,
        starts: Tensor | None = None,
        places: Tensor | None = None,
    ) -> dict[str, Tensor]:
        model = self.model
        layout: Layout = Padded()
        if starts is not None and places is not None:
            # On a CPU runs of equal length need to know the lengths; a GPU's kernel reads the starts.
            sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
            layout = Packed(sizes, starts, places, self.length)
        hidden = model(ids, layout, segments)
        # Only the rows with a hole go through the output layer, which is as wide as the vocabulary.
        vectors = model.masked.vectors(hidden.flatten(0, -2)[holes])
        losses = {"words": word_loss(vectors, model.masked.weight, model.masked.bias, targets)}
        if labels is not None:
            losses["pairs"] = mean_loss(model.next(model.pooler(hidden, layout)), labels)
        return losses | {"loss": torch.stack(list(losses.values())).sum()}


class Causal(Objective):
    """GPT's: tell each word from those before it."""

    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.model = model

    def prepare(self, portion: Portion, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": portion.ids[:, :-1], "targets": portion.ids[:, 1:].long()}

    def forward(self, ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        hidden = self.model(ids).flatten(0, 1)
        loss = word_loss(hidden, self.model.embedding.tokens.weight, None, targets.flatten())
        return {"words": loss, "loss": loss}


def word_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Cross-entropy over the vocabulary, filled up on a GPU with words that cannot be meant."""
    more = -len(weight) % ALIGNED
    if vectors.is_cuda and more:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-1e4)
    return mean_loss(F.linear(vectors, weight, bias), targets)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, the mean over targets that are not ignored; 0 where all are."""
    total = F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)
