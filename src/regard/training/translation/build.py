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
                vocab_size=subwords.source.size,
                target_vocab_size=None if subwords.joint else subwords.target.size,
                hidden_size=settings.hidden_size,
                num_hidden_layers=settings.num_hidden_layers,
                num_attention_heads=settings.num_attention_heads,
                intermediate_size=settings.intermediate_size,
                norm_first=settings.norm_first,
                final_norm=settings.norm_first,
                dropout=settings.dropout,
                share_embeddings=subwords.joint,
                pad_token_id=subwords.padding,
                decoder_start_token_id=subwords.begin,
                eos_token_id=subwords.end,
            )
        )
    return Seq2Seq(
        Seq2SeqConfig(
            source_size=subwords.source.size,
            target_size=subwords.target.size,
            hidden_size=settings.hidden_size,
            embedding_size=settings.embedding_size,
            num_hidden_layers=settings.num_hidden_layers,
            bidirectional=settings.bidirectional,
            score=settings.score,
            recipe=settings.recipe,
            dropout=settings.dropout,
            decoder_start_token_id=subwords.begin,
        )
    )
