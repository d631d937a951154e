"""Other software's tensor names in our words: one reversible table a family, and nothing else in the code knows them.

A table maps our name to theirs; several of theirs are rows of one of ours. `{i}` counts layers, `{p}` is weight or bias.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.models.catalog import Config

__all__ = ["Names", "entries", "from_theirs", "names_of", "tidied", "to_theirs"]

Table = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Names:
    """`prefix` goes before their names of the base model, and may be missing in a file. `layers` maps where each stack
    is (ours, theirs) to the names inside one layer. `heads` are there or not; `doubles` are copies and buffers that may
    be in a file and say nothing new; `transposed` marks ours that they keep the other way round."""

    prefix: str
    base: Table
    layers: Mapping[tuple[str, str], Table]
    heads: Mapping[str, Table] = field(default_factory=dict)
    doubles: str = "$^"
    transposed: str = "$^"


def _qkv(before: str, names: tuple[str, str, str], after: str = ".{p}") -> tuple[str, ...]:
    return tuple(f"{before}{name}{after}" for name in names)


_BERT_LAYER: Table = {
    "attention.project.{p}": _qkv("attention.self.", ("query", "key", "value")),
    "attention.output.{p}": "attention.output.dense.{p}",
    "attended.norm.{p}": "attention.output.LayerNorm.{p}",
    "ffn.inner.{p}": "intermediate.dense.{p}",
    "ffn.outer.{p}": "output.dense.{p}",
    "fed.norm.{p}": "output.LayerNorm.{p}",
}
_BERT_BASE: Table = {
    "embedding.tokens.weight": "embeddings.word_embeddings.weight",
    "embedding.positions.weight": "embeddings.position_embeddings.weight",
    "embedding.norm.{p}": "embeddings.LayerNorm.{p}",
}
_SEGMENTS: Table = {"embedding.segments.weight": "embeddings.token_type_embeddings.weight"}
_POOLER: Table = {"pooler.linear.{p}": "pooler.dense.{p}"}
_T5_ATTENTION = ("q", "k", "v")


def _t5_layer(*, decoder: bool, gated: bool) -> Table:
    last = 2 if decoder else 1
    inner = "wi_0" if gated else "wi"
    table: dict[str, str | tuple[str, ...]] = {
        "attention.project.weight": _qkv("layer.0.SelfAttention.", _T5_ATTENTION, ".weight"),
        "attention.output.weight": "layer.0.SelfAttention.o.weight",
        "attended.norm.weight": "layer.0.layer_norm.weight",
        "ffn.inner.weight": f"layer.{last}.DenseReluDense.{inner}.weight",
        "ffn.outer.weight": f"layer.{last}.DenseReluDense.wo.weight",
        "fed.norm.weight": f"layer.{last}.layer_norm.weight",
    }
    if gated:
        table["ffn.gate.weight"] = f"layer.{last}.DenseReluDense.wi_1.weight"
    if decoder:
        for ours, theirs in zip(("query", "key", "value"), _T5_ATTENTION, strict=True):
            table[f"cross.project.{ours}.weight"] = f"layer.1.EncDecAttention.{theirs}.weight"
        table["cross.output.weight"] = "layer.1.EncDecAttention.o.weight"
        table["crossed.norm.weight"] = "layer.1.layer_norm.weight"
    return table


def names_of(config: Config) -> Names | None:
    """The names of a family that other software has too; None where a file carries our own names."""
    family = config.family
    if family == "bert":
        return Names(
            "bert.",
            {**_BERT_BASE, **_SEGMENTS},
            {("encoder.layers", "encoder.layer"): _BERT_LAYER},
            {
                "pooler": _POOLER,
                "masked": {
                    "masked.linear.{p}": "cls.predictions.transform.dense.{p}",
                    "masked.norm.{p}": "cls.predictions.transform.LayerNorm.{p}",
                    "masked.bias": "cls.predictions.bias",
                },
                "next": {"next.{p}": "cls.seq_relationship.{p}"},
            },
            doubles=r"(bert\.)?embeddings\.position_ids|cls\.predictions\.decoder\.(weight|bias)",
        )
    if family == "roberta":
        return Names(
            "roberta.",
            {**_BERT_BASE, **_SEGMENTS},
            {("encoder.layers", "encoder.layer"): _BERT_LAYER},
            {
                "pooler": _POOLER,
                "masked": {
                    "masked.linear.{p}": "lm_head.dense.{p}",
                    "masked.norm.{p}": "lm_head.layer_norm.{p}",
                    "masked.bias": "lm_head.bias",
                },
            },
            doubles=r"(roberta\.)?embeddings\.position_ids|lm_head\.decoder\.(weight|bias)",
        )
    if family == "distilbert":
        return Names(
            "distilbert.",
            _BERT_BASE,
            {
                ("encoder.layers", "transformer.layer"): {
                    "attention.project.{p}": _qkv("attention.", ("q_lin", "k_lin", "v_lin")),
                    "attention.output.{p}": "attention.out_lin.{p}",
                    "attended.norm.{p}": "sa_layer_norm.{p}",
                    "ffn.inner.{p}": "ffn.lin1.{p}",
                    "ffn.outer.{p}": "ffn.lin2.{p}",
                    "fed.norm.{p}": "output_layer_norm.{p}",
                }
            },
            {
                "masked": {
                    "masked.linear.{p}": "vocab_transform.{p}",
                    "masked.norm.{p}": "vocab_layer_norm.{p}",
                    "masked.bias": "vocab_projector.bias",
                }
            },
            doubles=r"vocab_projector\.weight",
        )
    if family == "gpt2":
        return Names(
            "transformer.",
            {
                "embedding.tokens.weight": "wte.weight",
                "embedding.positions.weight": "wpe.weight",
                "decoder.norm.{p}": "ln_f.{p}",
            },
            {
                ("decoder.layers", "h"): {
                    "attention.project.{p}": "attn.c_attn.{p}",
                    "attention.output.{p}": "attn.c_proj.{p}",
                    "attended.norm.{p}": "ln_1.{p}",
                    "ffn.inner.{p}": "mlp.c_fc.{p}",
                    "ffn.outer.{p}": "mlp.c_proj.{p}",
                    "fed.norm.{p}": "ln_2.{p}",
                }
            },
            doubles=r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias|lm_head\.weight",
            transposed=r"decoder\.layers\.\d+\.(attention|ffn)\..*weight",
        )
    if family == "t5":
        gated = bool(getattr(config, "gated", False))
        bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return Names(
            "",
            {
                "embedding.tokens.weight": "shared.weight",
                "encoder.relative.table.weight": f"encoder.{bias}",
                "decoder.relative.table.weight": f"decoder.{bias}",
                "encoder.norm.weight": "encoder.final_layer_norm.weight",
                "decoder.norm.weight": "decoder.final_layer_norm.weight",
            },
            {
                ("encoder.layers", "encoder.block"): _t5_layer(decoder=False, gated=gated),
                ("decoder.layers", "decoder.block"): _t5_layer(decoder=True, gated=gated),
            },
            {"output": {"output.weight": "lm_head.weight"}},
            doubles=r"(en|de)coder\.embed_tokens\.weight|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_.*",
        )
    if family == "vit":
        return Names(
            "vit.",
            {
                "embedding.cls": "embeddings.cls_token",
                "embedding.positions": "embeddings.position_embeddings",
                "embedding.project.{p}": "embeddings.patch_embeddings.projection.{p}",
                "encoder.norm.{p}": "layernorm.{p}",
            },
            {
                ("encoder.layers", "encoder.layer"): {
                    "attention.project.{p}": _qkv("attention.attention.", ("query", "key", "value")),
                    "attention.output.{p}": "attention.output.dense.{p}",
                    "attended.norm.{p}": "layernorm_before.{p}",
                    "ffn.inner.{p}": "intermediate.dense.{p}",
                    "ffn.outer.{p}": "output.dense.{p}",
                    "fed.norm.{p}": "layernorm_after.{p}",
                }
            },
            {"classifier": {"classifier.{p}": "classifier.{p}"}},
        )
    return None


def entries(names: Names, config: Config, heads: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The whole table for one model: our name -> their names, every layer written out."""
    table: dict[str, tuple[str, ...]] = {}

    def add(before: str, their_before: str, part: Table) -> None:
        for ours, theirs in part.items():
            for p in ("weight", "bias") if "{p}" in ours else ("",):
                several = (theirs,) if isinstance(theirs, str) else theirs
                table[before + ours.replace("{p}", p)] = tuple(their_before + name.replace("{p}", p) for name in several)

    add("", names.prefix, names.base)
    for (ours, theirs), layer in names.layers.items():
        for i in range(_depth(config, ours)):
            add(f"{ours}.{i}.", f"{names.prefix}{theirs}.{i}.", layer)
    for head in heads:
        add("", names.prefix if head == "pooler" else "", names.heads.get(head, {}))
    return table


def _depth(config: Config, stack: str) -> int:
    name = "decoder_depth" if stack.startswith("decoder") and hasattr(config, "decoder_depth") else "depth"
    depth: int = getattr(config, name)
    return depth


def tidied(names: Names, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's tensors with the prefix put back where it is missing, old names made new, and doubles left out."""
    clean = {re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name): t for name, t in tensors.items()}
    clean = {re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name): t for name, t in clean.items()}
    clean = {name: t for name, t in clean.items() if not re.fullmatch(names.doubles, name)}
    if names.prefix and not any(name.startswith(names.prefix) for name in clean):
        heads = tuple(theirs for head, table in names.heads.items() if head != "pooler" for theirs in _first_words(table))
        clean = {name if name.startswith(heads) and heads else names.prefix + name: t for name, t in clean.items()}
    return clean


def _first_words(table: Table) -> set[str]:
    return {str(theirs).split(".")[0] + "." for theirs in table.values()}


def from_theirs(names: Names, ours: str, parts: list[Tensor]) -> Tensor:
    """One of our tensors from theirs."""
    tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    return tensor.T.contiguous() if tensor.ndim == 2 and re.fullmatch(names.transposed, ours) else tensor


def to_theirs(names: Names, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
    """The way back."""
    if tensor.ndim == 2 and re.fullmatch(names.transposed, ours):
        tensor = tensor.T
    return [part.contiguous() for part in tensor.chunk(count)]
