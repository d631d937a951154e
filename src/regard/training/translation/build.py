"""New translation models. Knows the families; knows no text and no file."""

from __future__ import annotations

import torch

from regard.inference.translation.model import TranslationModel
from regard.inference.translation.subwords import Subwords
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig
from regard.training.translation.config import TranslatorSection

__all__ = ["new_model"]


def new_model(settings: TranslatorSection, subwords: Subwords, *, seed: int) -> TranslationModel:
    """A model with new weights; the same seed draws the same."""
    torch.manual_seed(seed)
    if settings.family == "transformer":
        return Transformer(
            TransformerConfig(
                vocabulary=subwords.source.size,
                target_vocabulary=None if subwords.joint else subwords.target.size,
                width=settings.hidden_size,
                depth=settings.num_hidden_layers,
                heads=settings.num_attention_heads,
                ffn=settings.intermediate_size,
                norm_first=settings.norm_first,
                final_norm=settings.norm_first,
                dropout=settings.dropout,
                shared=subwords.joint,
                padding=subwords.padding,
                begin=subwords.begin,
                end=subwords.end,
            )
        )
    return Seq2Seq(
        Seq2SeqConfig(
            source=subwords.source.size,
            target=subwords.target.size,
            units=settings.hidden_size,
            embedding=settings.embedding_size,
            depth=settings.num_hidden_layers,
            bidirectional=settings.bidirectional,
            score=settings.score,
            recipe=settings.recipe,
            dropout=settings.dropout,
            begin=subwords.begin,
        )
    )
