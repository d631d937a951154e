"""Recurrent encoder-decoders, stored in Regard's own file format."""

from __future__ import annotations

from regard.models.family import Family

FAMILY = Family(
    name="seq2seq",
    title="a Seq2Seq",
    year=2014,
    description="LSTM or GRU encoder-decoder; attention none, dot, general or additive; recipe luong or deck",
    model="regard.models.seq2seq:Seq2Seq",
    config="regard.models.seq2seq:Seq2SeqConfig",
    capabilities=frozenset({"encoder-decoder", "translation", "recurrent"}),
    earlier_keys={
        "source": "source_size",
        "target": "target_size",
        "units": "hidden_size",
        "embedding": "embedding_size",
        "depth": "num_hidden_layers",
        "begin": "decoder_start_token_id",
    },
)
