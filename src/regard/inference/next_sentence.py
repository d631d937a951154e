"""Whether one text follows another, as BERT was pretrained to tell: [CLS] A [SEP] B [SEP], and two logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from regard.checkpoints.ready import evaluation_mode, family_name, require_tokenizer
from regard.data.batch import collate
from regard.errors import InputError
from regard.models import Bert
from regard.text import Tokenizer

__all__ = ["NextSentence", "predict_next_sentence"]


@dataclass(frozen=True)
class NextSentence:
    """`is_next`: how likely the second text follows the first. `cut`: how many tokens of the two did not fit."""

    is_next: float
    cut: int


def predict_next_sentence(model: nn.Module, tokenizer: Tokenizer | None, first: str, second: str) -> NextSentence:
    """How likely `second` comes right after `first`; of a pair too long for the model the longer is cut first."""
    tokens = require_tokenizer(model, tokenizer)
    if not isinstance(model, Bert) or model.pooler is None or model.next is None:
        raise InputError(
            "judging the next sentence needs a BERT with its pooler and next-sentence head, and this "
            f"{family_name(model)} model lacks them; take one as pretrained, such as google-bert/bert-base-uncased"
        )
    for name, text in (("first", first), ("second", second)):
        if not text.strip():
            raise InputError(f"expected two texts, but the {name} is empty")
    pair = tokens.encode(first, second, max_length=model.config.max_position_embeddings)
    batch = collate([pair.ids]).to(model.next.weight.device)
    segments = torch.tensor(pair.segments, device=batch.ids.device)
    with evaluation_mode(model):
        pooled = model.pooler(model(batch.ids, batch.layout, segments), batch.layout)
        likelihood = model.next(pooled).float().softmax(-1)[0, 0]
    return NextSentence(float(likelihood), pair.cut)
