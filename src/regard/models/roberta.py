"""RoBERTa: a BERT whose position table starts with two unused rows. XLM-RoBERTa and CamemBERT are RoBERTas."""

from __future__ import annotations

from regard.models import bert
from regard.models.family import Checkpoint, Family, shape

BASE = {
    "vocab_size": 50265,
    "position_offset": 2,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
FAMILY = Family(
    name="roberta",
    title="a RoBERTa",
    year=2019,
    description="BERT trained longer, byte-level BPE; heads: pooler, masked language model",
    model_class=bert.Bert,
    config_class=bert.BertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "pooling", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "mlm_head"),
    mlm_activation="gelu",
    checkpoints=(
        Checkpoint("FacebookAI/roberta-base", 124_697_433, BASE, ("mlm_head",)),
        Checkpoint("FacebookAI/roberta-large", 355_412_057, {**BASE, **shape(1024, 24, 16)}, ("mlm_head",)),
    ),
    num_separators=2,
)
