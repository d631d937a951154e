"""ELMo, stored in Regard's own file format."""

from __future__ import annotations

from regard.models.family import Family

FAMILY = Family(
    name="elmo",
    title="an ELMo",
    year=2018,
    description="forward and backward LSTM language models over subwords or characters; layers are mixed",
    model="regard.models.elmo:Elmo",
    config="regard.models.elmo:ElmoConfig",
    capabilities=frozenset({"fine-tuning", "layer-mix", "recurrent"}),
    heads=("output",),
    earlier_keys={
        "vocabulary": "vocab_size",
        "characters": "num_characters",
        "width": "hidden_size",
        "cell": "cell_size",
        "depth": "num_hidden_layers",
    },
    pretraining="elmo",
)
