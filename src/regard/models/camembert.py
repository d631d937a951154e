"""CamemBERT: a RoBERTa for French, with a Unigram tokenizer."""

from __future__ import annotations

from dataclasses import replace

from regard.models import roberta
from regard.models.family import Checkpoint

BASE = {**roberta.BASE, "vocab_size": 32005}
FAMILY = replace(
    roberta.FAMILY,
    name="camembert",
    title="a CamemBERT",
    year=2020,
    description="RoBERTa for French, Unigram tokenizer; heads: pooler, masked language model",
    checkpoints=(Checkpoint("almanach/camembert-base", 110_655_493, BASE, ("mlm_head",)),),
)
