"""Gemma 2: a Gemma with norms before and after each branch, alternating local and global layers, and softcapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from torch import Tensor

from regard.errors import InputError
from regard.models import gemma, llama
from regard.models.family import Checkpoint, TensorNames
from regard.nn.attention import softcap
from regard.nn.block import LayerConfig

TYPES = {False: "sliding_attention", True: "full_attention"}  # of layers, by whether they are global


@dataclass(frozen=True)
class Gemma2Config(gemma.GemmaConfig):
    """Gemma 2 2B by default. Scores are divided by sqrt(query_pre_attn_scalar).

    Every `sliding_window_pattern`-th layer attends to the whole text, the others to the last `sliding_window` tokens.
    """

    family: str = "gemma2"
    hidden_size: int = 2304
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4
    intermediate_size: int = 9216
    query_pre_attn_scalar: int = 256
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 2
    attn_logit_softcapping: float | None = 50.0
    final_logit_softcapping: float | None = 30.0

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to the whole text."""
        return (layer + 1) % self.sliding_window_pattern == 0

    def layer(self, number: int) -> LayerConfig:
        layer = super().layer(number)
        return replace(
            layer,
            post_norm=True,
            scale=1 / sqrt(self.query_pre_attn_scalar),
            softcap=self.attn_logit_softcapping,
            window=None if self.is_global(number) else layer.window,
        )


class Gemma2(gemma.Gemma):
    """A Gemma whose logits are limited to +-final_logit_softcapping."""

    config: Gemma2Config

    def __init__(self, config: Gemma2Config, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        cap = config.final_logit_softcapping
        if cap is not None and cap <= 0:
            raise InputError(f"final_logit_softcapping is {cap}; it must be above 0")

    def logits(self, hidden: Tensor) -> Tensor:
        logits, cap = super().logits(hidden), self.config.final_logit_softcapping
        return logits if cap is None else softcap(logits, cap)


def tensor_names(config: llama.LlamaConfig) -> TensorNames:
    norms = {
        "attention_residual.post_norm.weight": "post_attention_layernorm.weight",
        "ffn_residual.norm.weight": "pre_feedforward_layernorm.weight",
        "ffn_residual.post_norm.weight": "post_feedforward_layernorm.weight",
    }
    return llama.tensor_names(config, {**llama.layer_names(config), **norms})


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    gemma.read(fields, document)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if name in document:  # null: no cap
            fields[name] = document[name]
    kinds = document.get("layer_types")
    if isinstance(kinds, list):
        every = kinds.index(TYPES[True]) + 1 if TYPES[True] in kinds else len(kinds) + 1
        if kinds != [TYPES[(number + 1) % every == 0] for number in range(len(kinds))]:
            raise InputError(
                f"layer_types of a Gemma should be {TYPES[True]} for the last of every n layers and {TYPES[False]} for "
                f"the others, got {str(kinds)[:200]}"
            )
        if len(kinds) != fields["num_hidden_layers"]:
            raise InputError(f"layer_types has {len(kinds)} entries for {fields['num_hidden_layers']} layers")
        given = fields.get("sliding_window_pattern")
        # A pattern beyond the last layer makes all of them local, whatever its number.
        if every <= len(kinds) or not (isinstance(given, int) and given > len(kinds)):
            fields["sliding_window_pattern"] = every


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    gemma.write(document, fields)
    every = fields["sliding_window_pattern"]
    document["layer_types"] = [TYPES[(number + 1) % every == 0] for number in range(fields["num_hidden_layers"])]


KEYS = {
    **gemma.KEYS,
    **{
        name: name
        for name in (*("query_pre_attn_scalar", "sliding_window", "attn_logit_softcapping", "final_logit_softcapping"),)
    },
    "hidden_act": "hidden_activation",
}

FAMILY = replace(
    gemma.FAMILY,
    name="gemma2",
    title="a Gemma 2",
    description="Gemma with local and global layers, norms after each branch and softcapping",
    model_class=Gemma2,
    config_class=Gemma2Config,
    checkpoints=(
        Checkpoint("google/gemma-2-2b-it", 2_614_341_888, {}, ()),
        Checkpoint(
            "google/gemma-2-9b-it",
            9_241_705_984,
            llama.size(3584, 42, 16, 14336, num_key_value_heads=8),
            (),
        ),
    ),
    file_format=llama.file_format("Gemma2", KEYS, tensor_names=tensor_names, read=read, write=write),
)
