"""DeBERTa: the config.json and the tensors of published models, and what is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.checkpoints.configs import parse_config
from regard.engine.graphs import depends_on_lengths
from regard.errors import InputError
from regard.models.bert import BertConfig
from regard.models.deberta_v2 import DebertaV2Config
from regard.models.family import build, can
from regard.nn.masks import Packed, Padded

# As in microsoft/deberta-v3-base.
PUBLISHED: dict[str, Any] = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
TINY = DebertaV2Config(
    vocab_size=53,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=22,
    position_buckets=4,
)


def parse(**changes: object) -> DebertaV2Config:
    config: DebertaV2Config = parse_config(PUBLISHED | changes, Path("config.json"))
    return config


def test_published_config_is_the_default() -> None:
    assert parse() == DebertaV2Config()


def test_config_of_the_first_version() -> None:
    """deberta-v2-xlarge has a convolution; what a file lacks has the defaults of transformers."""
    found = parse(conv_kernel_size=3, conv_act="gelu", pooler_hidden_size=768)
    assert (found.conv_kernel_size, found.conv_act, found.conv_groups) == (3, "gelu", 1)
    optional = ("share_att_key", "position_buckets", "norm_rel_ebd", "position_biased_input", "max_relative_positions")
    document = {key: value for key, value in PUBLISHED.items() if key not in optional}
    plain = parse_config(document, Path("config.json"))
    assert (plain.share_att_key, plain.position_buckets, plain.norm_rel_ebd) == (False, None, "none")
    assert (plain.position_biased_input, plain.max_relative_positions) == (True, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention is False"),
        ({"relative_attention": None}, "relative_attention is None"),
        ({"embedding_size": 128}, "embedding_size is 128"),
        ({"pooler_hidden_size": 128}, "pooler_hidden_size is 128"),
        ({"pos_att_type": "p2c|p2p"}, "pos_att_type is .*; expected c2p, p2c or both"),
        ({"pos_att_type": []}, "pos_att_type"),
        ({"pos_att_type": [["c2p"]]}, "pos_att_type"),
        ({"pos_att_type": 3}, "pos_att_type"),
        ({"pos_att_type": None}, "pos_att_type"),
        ({"pooler_hidden_act": "tanh"}, "pooler_hidden_act is 'tanh'"),
        ({"position_buckets": "many"}, "position_buckets"),
        ({"conv_kernel_size": 3, "conv_act": "softmax"}, "conv_act"),
    ],
)
def test_refused_settings(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(**changes)


@pytest.mark.parametrize("changes", [{"conv_kernel_size": 4}, {"position_buckets": 80}])
def test_impossible_sizes_are_refused_when_a_folder_is_read(changes: dict[str, object], tmp_path: Path) -> None:
    regard.save(build(TINY), tmp_path)
    (tmp_path / "checksums.json").unlink()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=r"config\.json: (conv_kernel_size is 4|80 buckets)"):
        regard.load(tmp_path)


def test_position_embeddings_that_the_model_does_not_use(tmp_path: Path) -> None:
    """Published files contain them although position_biased_input is false."""
    model = build(TINY, output_heads=())
    regard.save(model, tmp_path)
    (tmp_path / "checksums.json").unlink()
    tensors = load_file(tmp_path / "model.safetensors")
    assert all(name.startswith("deberta.") for name in tensors)
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(22, 24)
    save_file(tensors, tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, _ = regard.load(tmp_path)
    assert not can(again, "masked-lm")
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("config", [TINY, replace(TINY, num_hidden_layers=1, conv_kernel_size=5)])
@pytest.mark.parametrize("packed", [False, True])
def test_selected_rows(config: DebertaV2Config, packed: bool) -> None:
    model, lengths, rows = build(config).eval(), (5, 3), torch.tensor([1, 6])
    padded = Padded.from_lengths(lengths)
    assert padded.mask is not None
    ids = torch.randint(5, 53, (2, 5))
    layout = Packed.from_lengths(lengths) if packed else padded
    inputs = ids[padded.mask] if packed else ids
    expected = model(inputs, layout).reshape(-1, 24)[rows]
    torch.testing.assert_close(model(inputs, layout, output_positions=rows), expected)


def test_ablated_heads_change_the_output() -> None:
    torch.manual_seed(0)
    model, ids = build(TINY).eval(), torch.randint(5, 53, (2, 9))
    with regard.record(model, edit=regard.ablate_heads([(1, 2)])) as tape:
        ablated = model(ids)
    assert not torch.allclose(ablated, model(ids))
    assert tape.attention()[0][:, 2].abs().max() == 0
    torch.testing.assert_close(tape.attention()[0][:, 1].sum(-1), torch.ones(2, 9))


def test_kernels_depend_on_the_lengths_of_texts() -> None:
    """So neither embedding nor fine-tuning records CUDA graphs, which have fixed shapes."""
    tiny = {name: getattr(TINY, name) for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    tiny |= {"num_attention_heads": 3, "intermediate_size": 37}
    bert, half = build(BertConfig(**tiny)), torch.bfloat16
    assert depends_on_lengths(build(TINY), half)
    assert depends_on_lengths(build(BertConfig(family="mpnet", **tiny, type_vocab_size=0, position_offset=2)), half)
    assert depends_on_lengths(bert, torch.float32)
    assert not depends_on_lengths(bert, half)
    assert depends_on_lengths(build(BertConfig(**{**tiny, "num_attention_heads": 4})), half)
