"""The common interface of Transformer and Seq2Seq translation models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models import Seq2Seq, Transformer
from regard.models.family import describe_model
from regard.nn import Padded

TranslationModel = Transformer | Seq2Seq


def as_translation_model(model: nn.Module) -> TranslationModel:
    """The model, if it can translate; raises InputError otherwise."""
    if isinstance(model, Transformer) or (isinstance(model, Seq2Seq) and model.source_embedding is not None):
        return model
    raise InputError(
        f"{describe_model(model)} does not translate; expected a Transformer or a recurrent model with "
        "tokens, trained with `regard train translate`"
    )


def vocab_sizes(model: TranslationModel) -> tuple[int, int]:
    """The vocabulary sizes of source and target."""
    if isinstance(model, Seq2Seq):
        return model.config.source_size, model.config.target_size
    return model.config.vocab_size, model.config.target_vocab_size or model.config.vocab_size


def teacher_forced_logits(model: TranslationModel, source: Tensor, layout: Padded, target: Tensor) -> Tensor:
    """The logits (B, T, V) of each target token, given the tokens before it."""
    if isinstance(model, Seq2Seq):
        scores: Tensor = model(source, target, layout)
        return scores
    begin = target.new_full((len(target), 1), model.begin)
    # Padding is on the right and the decoder is causal, so it needs no mask.
    hidden = model(source, torch.cat([begin, target[:, :-1]], dim=1), layout, Padded())
    return model.logits(hidden)
