"""Pretraining objectives: masked language modeling with next-sentence prediction, causal, bidirectional, T5's spans.

`prepare` converts a micro-batch to tensors of constant shape, and the module converts those to losses, so that it can
be compiled and distributed.
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
from regard.models.gpt2 import Gpt
from regard.models.t5 import T5
from regard.nn import Layout, Packed, Padded
from regard.nn.masks import first_token_indices
from regard.text import Tokenizer
from regard.training.pretraining.micro_batches import MicroBatch
from regard.training.pretraining.span_corruption import SpanCorruption

ALIGNED = 64  # GPUs multiply matrices faster if their sides are multiples of this
MAX_ELEMENTS = 2**31 - 1  # of a tensor: kernels index with 32 bits


class PretrainingObjective(nn.Module):
    """`forward` returns the loss to minimize as "loss", and its parts by name."""

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The keyword arguments of `forward`."""
        raise NotImplementedError


class MaskedLanguageModeling(PretrainingObjective):
    """BERT's: predict masked tokens and, for pairs, whether B follows A."""

    def __init__(self, model: Bert, masking: Masking, *, length: int) -> None:
        super().__init__()
        assert model.masked is not None
        self.model, self.masking, self.length = model, masking, length

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        masked = self.masking(batch.ids, generator, num_positions=round(batch.ids.numel() * self.masking.rate))
        given = {
            "ids": masked.ids,
            "masked_positions": masked.positions,
            "targets": masked.targets,
            "segments": batch.segments,
            "labels": batch.labels,
            "starts": batch.starts,
            "positions": batch.positions,
        }
        return {name: value for name, value in given.items() if value is not None}

    def forward(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        labels: Tensor | None = None,
        starts: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> dict[str, Tensor]:
        model: Any = self.model  # has the heads that are used
        layout: Layout = Padded()
        if starts is not None and positions is not None:
            # On a CPU the lengths group rows of equal length; a GPU kernel reads the starts.
            sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
            layout = Packed(sizes, starts, positions, self.length)
        # Only masked tokens go through the output layer, which is as wide as the vocabulary, and through most of the
        # last layer, together with the first token of each row, which represents the pair.
        rows = masked_positions if labels is None else torch.cat([masked_positions, first_token_indices(ids, layout)])
        hidden = model(ids, layout, segments, rows=rows)
        vectors = model.masked.vectors(hidden[: len(masked_positions)])
        losses = {"words": token_loss(vectors, model.masked.weight, model.masked.bias, targets)}
        if labels is not None:
            losses["pairs"] = mean_loss(model.next(model.pooler.vectors(hidden[len(masked_positions) :])), labels)
        return losses | {"loss": torch.stack(list(losses.values())).sum()}


class CausalLanguageModeling(PretrainingObjective):
    """GPT's: predict each token from those before it."""

    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.model = model

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": batch.ids[:, :-1], "targets": batch.ids[:, 1:].long()}

    def forward(self, ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        loss = token_loss(model(ids).flatten(0, 1), model.embedding.tokens.weight, None, targets.flatten())
        return {"words": loss, "loss": loss}


class SpanDenoising(PretrainingObjective):
    """T5's: predict the dropped spans, each after its sentinel."""

    def __init__(self, model: T5, corruption: SpanCorruption) -> None:
        super().__init__()
        self.model, self.corruption = model, corruption

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        corrupted = self.corruption(batch.ids, generator)
        decoder_ids = F.pad(corrupted.targets[:, :-1], (1, 0), value=self.model.begin)
        return {"ids": corrupted.inputs, "decoder_ids": decoder_ids, "targets": corrupted.targets}

    def forward(self, ids: Tensor, decoder_ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        hidden = model(ids, decoder_ids)
        if model.config.scale_decoder_outputs:
            hidden = hidden * model.config.hidden_size**-0.5
        weight = (model.output or model.embedding.tokens).weight
        loss = token_loss(hidden.flatten(0, 1), weight, None, targets.flatten())
        return {"spans": loss, "loss": loss}


class BidirectionalLanguageModeling(PretrainingObjective):
    """ELMo's: predict each token from those before it, and from those after it. Special tokens enclose rows."""

    def __init__(self, model: Elmo) -> None:
        super().__init__()
        assert model.output is not None
        self.model = model

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": batch.ids}

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        ahead, back = model(ids).chunk(2, dim=-1)
        words = ids[:, 1:-1].flatten().long()
        output = model.output
        losses = {
            "forwards": token_loss(ahead[:, :-2].flatten(0, 1), output.weight, output.bias, words),
            "backwards": token_loss(back[:, 2:].flatten(0, 1), output.weight, output.bias, words),
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
    """Masking for a tokenizer's ids, except its special tokens."""
    assert tokenizer.mask_token_id is not None
    special = torch.zeros(tokenizer.size, dtype=torch.bool)
    roles = (
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.pad_token_id,
        tokenizer.mask_token_id,
        tokenizer.unk_token_id,
    )
    special[[id for id in roles if id is not None]] = True
    continues = None
    if whole_words:
        continues = torch.tensor([tokenizer.token(id).startswith("##") for id in range(tokenizer.size)])
        if not continues.any():
            raise InputError(
                "whole words can be masked only with a WordPiece vocabulary, and this one has no ## pieces"
            )
        continues = continues.to(device)
    return Masking(special.to(device), mask=tokenizer.mask_token_id, rate=rate, replace=replace, continues=continues)


def token_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the vocabulary, which is padded on a GPU with entries of probability 0.

    Ignored targets do not count; 0 if all are ignored.
    """
    more = -len(weight) % ALIGNED
    if vectors.is_cuda and more:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-1e4)
    rows = -(-len(vectors) // -(-len(vectors) * len(weight) // MAX_ELEMENTS))
    parts = zip(torch.split(vectors, rows), torch.split(targets, rows), strict=True)
    sums = [_summed_loss(F.linear(part, weight, bias), words) for part, words in parts]
    return torch.stack(sums).sum() / _target_count(targets)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over targets that are not ignored; 0 if all are ignored."""
    return _summed_loss(logits, targets) / _target_count(targets)


def _summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def _target_count(targets: Tensor) -> Tensor:
    return (targets != IGNORE_INDEX).sum().clamp(min=1)
