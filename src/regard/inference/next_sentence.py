"""Next-sentence prediction as in BERT's pretraining: [CLS] A [SEP] B [SEP] and two logits."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.data.batch import collate
from regard.errors import InputError
from regard.models.family import can, family_name
from regard.nn.training import evaluation_mode
from regard.render.result import Result
from regard.text import Tokenizer


class NextSentence(Result):
    """`is_next` is the probability that the second text follows the first; `cut` tokens of the two did not fit."""

    is_next: float
    cut: int = Field(0, exclude=True)

    def to_text(self) -> str:
        return f"{self.is_next:.3%} likely that the second text follows the first"


def predict_next_sentence(model: nn.Module, tokenizer: Tokenizer | None, first: str, second: str) -> NextSentence:
    """How likely `second` follows `first`. If the pair is too long, the longer text is truncated first."""
    tokens = require_tokenizer(model, tokenizer)
    if not can(model, "next-sentence"):
        raise InputError(
            "next-sentence prediction needs a BERT with its pooler and next-sentence head, and this "
            f"{family_name(model)} model has none; use a pretrained one, such as google-bert/bert-base-uncased"
        )
    for name, text in (("first", first), ("second", second)):
        if not text.strip():
            raise InputError(f"expected two texts, but the {name} is empty")
    pair = tokens.encode(first, second, max_length=model.config.max_position_embeddings)
    batch = collate([pair.ids]).to(model.next.weight.device)
    segments = torch.tensor(pair.segments, device=batch.ids.device)
    with evaluation_mode(model):
        pooled = model.pooler(model(batch.ids, batch.layout, segments), batch.layout)
        probability = model.next(pooled).float().softmax(-1)[0, 0]
    return NextSentence(is_next=float(probability), cut=pair.cut)
