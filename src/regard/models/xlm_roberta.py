"""XLM-RoBERTa: a RoBERTa for 100 languages, with a Unigram tokenizer."""

from __future__ import annotations

from dataclasses import replace

from regard.models import roberta
from regard.models.family import Checkpoint, shape

BASE = {**roberta.BASE, "vocab_size": 250002}
FAMILY = replace(
    roberta.FAMILY,
    name="xlm-roberta",
    title="an XLM-RoBERTa",
    year=2020,
    description="RoBERTa for 100 languages, Unigram tokenizer; heads: pooler, masked language model",
    checkpoints=(
        Checkpoint("FacebookAI/xlm-roberta-base", 278_295_186, BASE, ("mlm_head",)),
        Checkpoint("FacebookAI/xlm-roberta-large", 560_142_482, {**BASE, **shape(1024, 24, 16)}, ("mlm_head",)),
    ),
)
