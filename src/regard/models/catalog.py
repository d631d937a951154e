"""Which families there are, and how to build one of them from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.errors import check_choice
from regard.models.bert import HEADS, Bert, BertConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import Vit, VitConfig

__all__ = ["FAMILIES", "Config", "Family", "build", "family_of"]

Config = BertConfig | ElmoConfig | GptConfig | Seq2SeqConfig | T5Config | TransformerConfig | VitConfig


@dataclass(frozen=True)
class Family:
    """A kind of model: its configuration, its class, and the heads it can have."""

    config: type[Config]
    model: Callable[..., nn.Module]
    heads: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    "seq2seq": Family(Seq2SeqConfig, Seq2Seq),
    "elmo": Family(ElmoConfig, Elmo, ("output",)),
    "transformer": Family(TransformerConfig, Transformer),
    "bert": Family(BertConfig, Bert, HEADS["bert"]),
    "distilbert": Family(BertConfig, Bert, HEADS["distilbert"]),
    "roberta": Family(BertConfig, Bert, HEADS["roberta"]),
    "gpt2": Family(GptConfig, Gpt),
    "t5": Family(T5Config, T5, ("output",)),
    "vit": Family(VitConfig, Vit, ("pooler", "classifier")),
}


def family_of(name: str) -> Family:
    check_choice("model family", name, FAMILIES)
    return FAMILIES[name]


def build(config: Config, *, heads: Collection[str] | None = None) -> nn.Module:
    """The model a configuration describes, with new weights; `heads` None: the family's usual ones."""
    family = family_of(config.family)
    options: dict[str, Any] = {"heads": heads} if family.heads and heads is not None else {}
    return family.model(config, **options)
