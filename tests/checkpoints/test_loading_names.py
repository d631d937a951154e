"""The rename tables are complete, one to one, and reversible; names in old files are converted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoints.file_format import TensorNames
from regard.checkpoints.loading import (
    entries,
    fitted,
    from_theirs,
    names_of,
    output_heads_in,
    tensor_table,
    tidied,
    to_theirs,
)
from regard.models.bert import BertConfig
from regard.models.family import build, get_family
from regard.models.gpt2 import GptConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.t5 import T5Config
from regard.models.vit import VitConfig

SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
TEXT = {**SMALL, "vocab_size": 53}
CONFIGS: list[Any] = [
    BertConfig(**TEXT),
    BertConfig("distilbert", **TEXT, type_vocab_size=0),
    BertConfig("roberta", **TEXT, position_offset=2),
    GptConfig(**TEXT),
    T5Config(**TEXT, head_dim=5, num_decoder_layers=2),
    T5Config(**TEXT, head_dim=5, num_decoder_layers=4, is_gated_act=True),
    VitConfig(**SMALL),
]


def distinct_state(model: nn.Module) -> dict[str, Tensor]:
    """Regard's state dict, in which all values are different."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    ends = torch.tensor([shape.numel() for shape in shapes.values()]).cumsum(0).tolist()
    return {n: torch.arange(e - s.numel(), e).view(s) for (n, s), e in zip(shapes.items(), ends, strict=True)}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.family)
def test_renaming_is_reversible(config: Any) -> None:
    model = build(config, output_heads=get_family(config.family).output_heads)
    state, names = distinct_state(model), names_of(config)
    table = tensor_table(names, model)
    assert set(table) == set(state)
    theirs = [name for several in table.values() for name in several]
    assert len(set(theirs)) == len(theirs)
    written: dict[str, Tensor] = {}
    for ours, several in table.items():
        written |= dict(zip(several, to_theirs(names, ours, state[ours], len(several)), strict=True))
    assert all(tensor.is_contiguous() for tensor in written.values())
    for ours, several in table.items():
        assert torch.equal(from_theirs(names, ours, [written[name] for name in several]), state[ours])


def test_names_of_bert() -> None:
    config = BertConfig(**TEXT)
    table = entries(names_of(config), config, ["pooler", "mlm_head"])
    assert table["embedding.tokens.weight"] == ("bert.embeddings.word_embeddings.weight",)
    layer = "bert.encoder.layer.2.attention.self"
    assert table["encoder.layers.2.attention.project.bias"] == (
        f"{layer}.query.bias",
        f"{layer}.key.bias",
        f"{layer}.value.bias",
    )
    assert table["pooler.linear.weight"] == ("bert.pooler.dense.weight",)
    assert table["mlm_head.bias"] == ("cls.predictions.bias",)
    assert "nsp_head.weight" not in table
    assert not any("layer.3" in name for several in table.values() for name in several)


def test_gpt2_matrices_are_transposed() -> None:
    names = names_of(GptConfig(**TEXT))
    matrix = torch.arange(6.0).view(2, 3)
    for ours in ("attention.project", "attention.output", "ffn.inner", "ffn.outer"):
        name = f"decoder.layers.11.{ours}.weight"
        assert torch.equal(to_theirs(names, name, matrix, 1)[0], matrix.T)
        assert torch.equal(from_theirs(names, name, [matrix.T]), matrix)
    for name in ("embedding.tokens.weight", "embedding.positions.weight"):
        assert torch.equal(to_theirs(names, name, matrix, 1)[0], matrix)
    assert torch.equal(to_theirs(names, "decoder.layers.0.ffn.inner.bias", matrix[0], 1)[0], matrix[0])


def test_t5_encoder_and_decoder_may_differ_in_depth() -> None:
    config = T5Config(**TEXT, num_decoder_layers=2)
    theirs = {name for several in entries(names_of(config), config, []).values() for name in several}
    assert "encoder.block.2.layer.1.DenseReluDense.wi.weight" in theirs
    assert "decoder.block.1.layer.2.DenseReluDense.wi.weight" in theirs
    assert not any(name.startswith(("encoder.block.3.", "decoder.block.2.")) or "wi_" in name for name in theirs)


def test_families_specific_to_regard_have_no_table() -> None:
    config = Seq2SeqConfig()
    assert not names_of(config).base
    assert entries(names_of(config), config, []) == {}


ONE, TWO = torch.ones(2), torch.full((2,), 2.0)
WORDS = "embeddings.word_embeddings.weight"


def names(config: Any, tensors: dict[str, Tensor]) -> TensorNames:
    return fitted(names_of(config), tensors)


def test_a_model_without_a_head_has_no_prefix() -> None:
    config = BertConfig(**TEXT)
    with_prefix, without = {f"bert.{WORDS}": ONE}, {WORDS: ONE}
    assert entries(names(config, with_prefix), config, [])["embedding.tokens.weight"] == (f"bert.{WORDS}",)
    bare = entries(names(config, without), config, ["pooler", "mlm_head"])
    assert bare["embedding.tokens.weight"] == (WORDS,)
    assert bare["pooler.linear.bias"] == ("pooler.dense.bias",)
    assert bare["mlm_head.bias"] == ("cls.predictions.bias",)


def test_old_names_are_converted() -> None:
    found = {f"bert.embeddings.LayerNorm.{old}": ONE for old in ("gamma", "beta")}
    expected = {f"bert.embeddings.LayerNorm.{new}" for new in ("weight", "bias")}
    assert set(tidied(names(BertConfig(), found), found)) == expected


@pytest.mark.parametrize(
    ("config", "buffer"),
    [
        (BertConfig(), "embeddings.position_ids"),
        (BertConfig(), "bert.embeddings.position_ids"),
        (BertConfig("roberta"), "roberta.embeddings.position_ids"),
        (GptConfig(), "h.0.attn.bias"),
        (GptConfig(), "transformer.h.11.attn.bias"),
        (GptConfig(), "h.3.attn.masked_bias"),
        (T5Config(), "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
    ],
)
def test_buffers_are_ignored(config: Any, buffer: str) -> None:
    found = {buffer: ONE, "something.else": ONE}
    assert set(tidied(names(config, found), found)) == {"something.else"}


def test_weights_are_not_mistaken_for_buffers() -> None:
    for config in CONFIGS:
        heads = get_family(config.family).output_heads
        theirs = [name for several in entries(names_of(config), config, heads).values() for name in several]
        found = {name: torch.tensor([float(place)]) for place, name in enumerate(theirs)}
        assert set(tidied(names(config, found), found)) == set(found), config.family


COPIES = [
    (BertConfig(), "cls.predictions.decoder.weight", f"bert.{WORDS}"),
    (BertConfig(), "cls.predictions.decoder.weight", WORDS),
    (BertConfig(), "cls.predictions.decoder.bias", "cls.predictions.bias"),
    (BertConfig("roberta"), "lm_head.decoder.weight", f"roberta.{WORDS}"),
    (BertConfig("roberta"), "lm_head.decoder.bias", "lm_head.bias"),
    (BertConfig("distilbert"), "vocab_projector.weight", f"distilbert.{WORDS}"),
    (GptConfig(), "lm_head.weight", "transformer.wte.weight"),
    (GptConfig(), "lm_head.weight", "wte.weight"),
    (T5Config(), "encoder.embed_tokens.weight", "shared.weight"),
    (T5Config(), "decoder.embed_tokens.weight", "shared.weight"),
    (T5Config(), "lm_head.weight", "shared.weight"),
]


@pytest.mark.parametrize(("config", "copy", "original"), COPIES)
def test_an_equal_copy_is_dropped_and_a_different_tensor_is_not(config: Any, copy: str, original: str) -> None:
    same, other, alone = {original: ONE, copy: ONE.clone()}, {original: ONE, copy: TWO}, {copy: TWO}
    assert tidied(names(config, same), same) == {original: same[original]}
    assert set(tidied(names(config, other), other)) == {original, copy}
    if "word_embeddings" not in original and "wte" not in original:
        assert tidied(names(config, alone), alone) == {original: TWO}


def test_a_copy_replaces_a_missing_original() -> None:
    found = {"transformer.wpe.weight": ONE, "lm_head.weight": TWO}
    assert tidied(names(GptConfig(), found), found) == {"transformer.wpe.weight": ONE, "transformer.wte.weight": TWO}
    # If the output matrix is not tied, T5's embeddings are the other copy.
    found = {"encoder.embed_tokens.weight": ONE, "lm_head.weight": TWO}
    assert tidied(names(T5Config(), found), found) == {"shared.weight": ONE, "lm_head.weight": TWO}


def test_heads_are_found_by_any_of_their_tensors() -> None:
    heads = get_family("bert").output_heads
    assert output_heads_in(names_of(BertConfig()), heads, {"cls.seq_relationship.bias": ONE}) == ["nsp_head"]
    assert output_heads_in(names_of(BertConfig()), heads, {"bert.pooler.dense.weight": ONE}) == ["pooler"]
    assert output_heads_in(names_of(BertConfig()), heads, {"pooler.dense.weight": ONE}) == []
    bare = {"pooler.dense.weight": ONE, "cls.predictions.bias": ONE}
    assert output_heads_in(names(BertConfig(), bare), heads, bare) == ["pooler", "mlm_head"]
    assert output_heads_in(names_of(T5Config()), get_family("t5").output_heads, {"lm_head.weight": ONE}) == ["output"]
