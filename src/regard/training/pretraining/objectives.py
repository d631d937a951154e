"""What a model is to learn from running text: hidden words, whether B follows A, the next word, or dropped stretches.

Knows models and losses; knows no text and no optimizer. `prepare` turns a portion into tensors of one shape, and the
module turns those into losses, so that it can be compiled and spread over processes as it is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.models.bert import Bert
from regard.models.elmo import Elmo
from regard.models.gpt import Gpt
from regard.models.t5 import T5
from regard.nn import Layout, Packed, Padded
from regard.nn.masks import first_token_indices
from regard.text import Tokenizer
from regard.training.pretraining.micro_batches import MicroBatch
from regard.training.pretraining.span_corruption import SpanCorruption

__all__ = [
    "BidirectionalLanguageModeling",
    "CausalLanguageModeling",
    "MaskedLanguageModeling",
    "PretrainingObjective",
    "SpanDenoising",
    "masking_for",
    "word_loss",
]

ALIGNED = 64  # GPUs multiply matrices faster whose sides are multiples of this
COUNTED = 2**31 - 1  # numbers of a table at most: kernels count their places with 32 bits


class PretrainingObjective(nn.Module):
    """`forward` returns the loss to minimise under "loss", beside its parts by name."""

    def prepare(self, portion: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The keyword arguments of `forward`."""
        raise NotImplementedError


class MaskedLanguageModeling(PretrainingObjective):
    """BERT's: tell the hidden words from the words around them and, where portions are pairs, whether B follows A."""

    def __init__(self, model: Bert, masking: Masking, *, length: int) -> None:
        super().__init__()
        assert model.masked is not None
        self.model, self.masking, self.length = model, masking, length

    def prepare(self, portion: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
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
        model: Any = self.model  # has the heads that are used
        layout: Layout = Padded()
        if starts is not None and places is not None:
            # On a CPU runs of equal length need to know the lengths; a GPU's kernel reads the starts.
            sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
            layout = Packed(sizes, starts, places, self.length)
        # Only hidden words go through the output layer, which is as wide as the vocabulary, and through most of the
        # last layer; beside them the first token of each row, which speaks for the pair.
        rows = holes if labels is None else torch.cat([holes, first_token_indices(ids, layout)])
        hidden = model(ids, layout, segments, rows=rows)
        vectors = model.masked.vectors(hidden[: len(holes)])
        losses = {"words": word_loss(vectors, model.masked.weight, model.masked.bias, targets)}
        if labels is not None:
            losses["pairs"] = mean_loss(model.next(model.pooler.vectors(hidden[len(holes) :])), labels)
        return losses | {"loss": torch.stack(list(losses.values())).sum()}


class CausalLanguageModeling(PretrainingObjective):
    """GPT's: tell each word from those before it."""

    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.model = model

    def prepare(self, portion: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": portion.ids[:, :-1], "targets": portion.ids[:, 1:].long()}

    def forward(self, ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        loss = word_loss(model(ids).flatten(0, 1), model.embedding.tokens.weight, None, targets.flatten())
        return {"words": loss, "loss": loss}


class SpanDenoising(PretrainingObjective):
    """T5's: say the stretches that were dropped from a text, each behind its sentinel."""

    def __init__(self, model: T5, corruption: SpanCorruption) -> None:
        super().__init__()
        self.model, self.corruption = model, corruption

    def prepare(self, portion: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        corrupted = self.corruption(portion.ids, generator)
        said = F.pad(corrupted.targets[:, :-1], (1, 0), value=self.model.begin)
        return {"ids": corrupted.inputs, "said": said, "targets": corrupted.targets}

    def forward(self, ids: Tensor, said: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        hidden = model(ids, said)
        if model.config.scale_decoder_outputs:
            hidden = hidden * model.config.hidden_size**-0.5
        weight = (model.output or model.embedding.tokens).weight
        loss = word_loss(hidden.flatten(0, 1), weight, None, targets.flatten())
        return {"spans": loss, "loss": loss}


class BidirectionalLanguageModeling(PretrainingObjective):
    """ELMo's: tell each word from those before it, and from those behind it. A row's first and last token are marks."""

    def __init__(self, model: Elmo) -> None:
        super().__init__()
        assert model.output is not None
        self.model = model

    def prepare(self, portion: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": portion.ids}

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        ahead, back = model(ids).chunk(2, dim=-1)
        words = ids[:, 1:-1].flatten().long()
        output = model.output
        losses = {
            "forwards": word_loss(ahead[:, :-2].flatten(0, 1), output.weight, output.bias, words),
            "backwards": word_loss(back[:, 2:].flatten(0, 1), output.weight, output.bias, words),
        }
        return losses | {"loss": (losses["forwards"] + losses["backwards"]) / 2}


def masking_for(
    tokenizer: Tokenizer,
    *,
    rate: float = 0.15,
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1),
    whole_words: bool = False,
    device: torch.device | None = None,
) -> Masking:
    """The masking of a tokenizer's ids; its special tokens stay as they are."""
    assert tokenizer.mask is not None
    special = torch.zeros(tokenizer.size, dtype=torch.bool)
    roles = (tokenizer.cls, tokenizer.sep, tokenizer.pad, tokenizer.mask, tokenizer.unknown)
    special[[id for id in roles if id is not None]] = True
    continues = None
    if whole_words:
        continues = torch.tensor([tokenizer.token(id).startswith("##") for id in range(tokenizer.size)])
        if not continues.any():
            raise InputError(
                "whole words can be hidden only with a WordPiece vocabulary, and this one has no ## pieces"
            )
        continues = continues.to(device)
    return Masking(special.to(device), mask=tokenizer.mask, rate=rate, replace=replace, continues=continues)


def word_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Cross-entropy over the vocabulary, filled up on a GPU with words that cannot be meant.

    The mean over targets that are not ignored; 0 where all are.
    """
    more = -len(weight) % ALIGNED
    if vectors.is_cuda and more:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-1e4)
    rows = -(-len(vectors) // -(-len(vectors) * len(weight) // COUNTED))
    parts = zip(torch.split(vectors, rows), torch.split(targets, rows), strict=True)
    sums = [_summed_loss(F.linear(part, weight, bias), words) for part, words in parts]
    return torch.stack(sums).sum() / _meant(targets)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, the mean over targets that are not ignored; 0 where all are."""
    return _summed_loss(logits, targets) / _meant(targets)


def _summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def _meant(targets: Tensor) -> Tensor:
    return (targets != IGNORE_INDEX).sum().clamp(min=1)
