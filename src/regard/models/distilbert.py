"""DistilBERT: a BERT with half the layers and without segments."""

from __future__ import annotations

from regard.models import bert
from regard.models.family import Checkpoint, Family

SMALL = {"num_hidden_layers": 6, "type_vocab_size": 0}


FAMILY = Family(
    name="distilbert",
    title="a DistilBERT",
    year=2019,
    description="BERT with half the layers and no segments; head: masked language model",
    model_class=bert.Bert,
    config_class=bert.BertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("mlm_head",),
    pooler_activation="relu",
    checkpoints=(
        Checkpoint("distilbert/distilbert-base-uncased", 66_985_530, SMALL),
        Checkpoint("distilbert/distilbert-base-cased", 65_812_036, {"vocab_size": 28996, **SMALL}),
    ),
)
