"""The Transformer of 2017, stored in Regard's own file format."""

from __future__ import annotations

from regard.models.family import Family

FAMILY = Family(
    name="transformer",
    title="a Transformer",
    year=2017,
    description="the encoder-decoder of 2017, sinusoidal positions",
    model="regard.models.transformer:Transformer",
    config="regard.models.transformer:TransformerConfig",
    capabilities=frozenset({"encoder-decoder", "translation"}),
    earlier_keys={
        "vocabulary": "vocab_size",
        "target_vocabulary": "target_vocab_size",
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "intermediate_size",
        "activation": "hidden_act",
        "eps": "layer_norm_eps",
        "shared": "share_embeddings",
        "padding": "pad_token_id",
        "begin": "decoder_start_token_id",
        "end": "eos_token_id",
    },
)
