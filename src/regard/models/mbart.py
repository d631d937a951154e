"""mBART: a BART with the norm first and a norm after each stack, for many languages. It also reads mBART-50.

The first token of an output is the code of its language: the decoder starts with it or, in mBART-50, is forced to
generate it.
"""

from __future__ import annotations

from dataclasses import replace

from regard.models import bart
from regard.models.family import Checkpoint

LARGE = {**bart.LARGE, "norm_first": True, "scale_embedding": True}
FAMILY = replace(
    bart.FAMILY,
    name="mbart",
    title="an mBART",
    year=2020,
    description="BART for 25 or 50 languages, norm first; translates once it is fine-tuned",
    capabilities=frozenset({"encoder-decoder", "translation"}),
    checkpoints=(
        Checkpoint("facebook/mbart-large-en-ro", 610_851_840, {**LARGE, "vocab_size": 250027}),
        Checkpoint("facebook/mbart-large-50-many-to-many-mmt", 610_879_488, {**LARGE, "vocab_size": 250054}),
    ),
)
