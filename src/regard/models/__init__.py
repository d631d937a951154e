"""Model families, one module each. Names are imported on first use, so that importing the package is quick."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.models.bert import Bert, BertConfig
    from regard.models.clip import Clip, ClipConfig
    from regard.models.deit import Deit, DeitConfig
    from regard.models.elmo import Elmo, ElmoConfig
    from regard.models.gpt2 import Gpt, GptConfig
    from regard.models.llama import Llama, LlamaConfig
    from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
    from regard.models.t5 import T5, T5Config
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.models.vit import Vit, VitConfig

__all__ = [
    "T5",
    "Bert",
    "BertConfig",
    "Clip",
    "ClipConfig",
    "Deit",
    "DeitConfig",
    "Elmo",
    "ElmoConfig",
    "Gpt",
    "GptConfig",
    "Llama",
    "LlamaConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "T5Config",
    "Transformer",
    "TransformerConfig",
    "Vit",
    "VitConfig",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = name.removesuffix("Config").lower()
    return getattr(import_module(f"{__name__}.{'gpt2' if module == 'gpt' else module}"), name)
