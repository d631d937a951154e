"""Every family of the decks, one file each: the values in which it differs, and how it is put together."""

from regard.models.bert import Bert, BertConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import Vit, VitConfig

__all__ = [
    "T5",
    "Bert",
    "BertConfig",
    "Elmo",
    "ElmoConfig",
    "Gpt",
    "GptConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "T5Config",
    "Transformer",
    "TransformerConfig",
    "Vit",
    "VitConfig",
]
