"""Other software's tensor names in our words: one reversible table a family, and nothing else in the code knows them.

A table maps our name to theirs; several of theirs are rows of one of ours. `{p}` is weight or bias, `{base}` a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.models.catalog import Config

__all__ = ["Names", "entries", "fitted", "from_theirs", "heads_in", "names_of", "tidied", "to_theirs"]

Table = Mapping[str, str | tuple[str, ...]]
NOTHING = "(?!)"  # a pattern that fits no name


@dataclass(frozen=True)
class Names:
    """`prefix` goes before their names of the base model, and may be missing in a file. `layers` maps where each stack
    is (ours, theirs) to the names inside one layer. `heads` are there or not. `copies` gives what they may keep twice
    and its original; `buffers` are no weights; `transposed` marks ours that they keep the other way round."""

    prefix: str
    base: Table
    layers: Mapping[tuple[str, str], Table]
    heads: Mapping[str, Table] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    buffers: str = NOTHING
    transposed: str = NOTHING


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
_POOLER: Table = {"pooler.linear.{p}": "{base}pooler.dense.{p}"}
_WORDS = "{base}embeddings.word_embeddings.weight"
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


def names_of(config: Config) -> Names:
    """The names of a family that other software has too; an empty base where a file carries our own names."""
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
            copies={"cls.predictions.decoder.weight": _WORDS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
            buffers=r"(bert\.)?embeddings\.position_ids",
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
            copies={"lm_head.decoder.weight": _WORDS, "lm_head.decoder.bias": "lm_head.bias"},
            buffers=r"(roberta\.)?embeddings\.position_ids",
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
            copies={"vocab_projector.weight": _WORDS},
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
            copies={"lm_head.weight": "{base}wte.weight"},
            buffers=r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",
            transposed=r"decoder\.layers\.\d+\.(attention|ffn)\..*weight",
        )
    if family == "t5":
        gated = bool(getattr(config, "is_gated_act", False))
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
            copies=dict.fromkeys(
                ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), "shared.weight"
            ),
            buffers=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
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
            {"pooler": _POOLER, "classifier": {"classifier.{p}": "classifier.{p}"}},
        )
    return Names("", {}, {}, {"output": {"output.{p}": "output.{p}"}})


def entries(names: Names, config: Config, heads: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The whole table for one model: our name -> their names, every layer written out."""
    table = _written(names.base, "", names.prefix)
    for (ours, theirs), layer in names.layers.items():
        for i in range(_depth(config, ours)):
            table |= _written(layer, f"{ours}.{i}.", f"{names.prefix}{theirs}.{i}.")
    for head in heads:
        table |= _head(names, head)
    return table


def heads_in(names: Names, heads: Iterable[str], tensors: Mapping[str, Tensor]) -> list[str]:
    """Those of a family's `heads` that a file has, be it in part."""
    return [head for head in heads if any(name in tensors for theirs in _head(names, head).values() for name in theirs)]


def _head(names: Names, head: str) -> dict[str, tuple[str, ...]]:
    table = _written(names.heads[head], "", "")
    return {ours: tuple(name.replace("{base}", names.prefix) for name in theirs) for ours, theirs in table.items()}


def _written(part: Table, before: str, their_before: str) -> dict[str, tuple[str, ...]]:
    table = {}
    for ours, theirs in part.items():
        several = (theirs,) if isinstance(theirs, str) else theirs
        for p in ("weight", "bias") if "{p}" in ours else ("",):
            table[before + ours.replace("{p}", p)] = tuple(their_before + name.replace("{p}", p) for name in several)
    return table


def _depth(config: Config, stack: str) -> int:
    name = (
        "num_decoder_layers"
        if stack.startswith("decoder") and hasattr(config, "num_decoder_layers")
        else "num_hidden_layers"
    )
    depth: int = getattr(config, name)
    return depth


def fitted(names: Names, tensors: Iterable[str]) -> Names:
    """The names as a file writes them: that of a bare model leaves the prefix out."""
    prefix = names.prefix if any(name.startswith(names.prefix) for name in tensors) else ""
    copies = {copy: original.replace("{base}", prefix) for copy, original in names.copies.items()}
    return replace(names, prefix=prefix, copies=copies)


def tidied(names: Names, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's tensors: old names made new, buffers and true copies left out; a copy may stand in for its original."""
    found = {_modern(name): tensor for name, tensor in tensors.items() if not re.fullmatch(names.buffers, name)}
    for copy, original in names.copies.items():
        if copy in found and original not in found:
            found[original] = found.pop(copy)
        elif copy in found and torch.equal(found[copy], found[original]):
            del found[copy]
    return found


def _modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def from_theirs(names: Names, ours: str, parts: list[Tensor]) -> Tensor:
    """One of our tensors from theirs."""
    tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    return tensor.T.contiguous() if tensor.ndim == 2 and re.fullmatch(names.transposed, ours) else tensor


def to_theirs(names: Names, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
    """The way back."""
    if tensor.ndim == 2 and re.fullmatch(names.transposed, ours):
        tensor = tensor.T
    return [part.contiguous() for part in tensor.chunk(count)]
