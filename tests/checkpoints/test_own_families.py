"""Families that exist only in Regard: a saved model loads with bit-identical outputs, in every variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from regard.checkpoints.files import read_tensors
from regard.checkpoints.loading import read_model
from regard.errors import InputError
from regard.models.elmo import ElmoConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig
from tests.checkpoints.test_loading_models import (
    IDS,
    LAYOUT,
    TEXT,
    assert_same,
    load_without_warnings,
    renaming,
    rewrite_tensors,
    save_random_model,
)

FRAMES = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("score", ["none", "dot", "general", "additive"])
@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("tokens", [False, True])
def test_recurrent_models(tmp_path: Path, cell: Any, score: Any, recipe: Any, tokens: bool) -> None:
    config = Seq2SeqConfig(
        source_size=53 if tokens else 5,
        target_size=11,
        hidden_size=8,
        embedding_size=6 if tokens else 0,
        num_hidden_layers=2,
        cell=cell,
        bidirectional=tokens,
        score=score,
        recipe=recipe,
        feedback="identity" if score == "dot" else "softmax",
        decoder_start_token_id=3,
    )
    model = save_random_model(config, tmp_path)
    again = load_without_warnings(tmp_path)
    assert again.config == config
    source = IDS if tokens else FRAMES
    with torch.no_grad():
        for options in ({"steps": 4}, {"steps": 2, "layout": LAYOUT}):
            assert torch.equal(again(source, **options), model(source, **options))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_offset_of_the_weights_in_the_file_changes_no_bit(tmp_path: Path, cell: Any) -> None:
    """A longer header moves every tensor, and unaligned MKL products would change the last bit (2e-7 in a GRU)."""
    model = save_random_model(
        Seq2SeqConfig(source_size=5, target_size=11, hidden_size=13, embedding_size=0, num_hidden_layers=2, cell=cell),
        tmp_path,
    )
    tensors = {name: tensor.clone() for name, tensor in read_tensors(tmp_path).items()}
    (tmp_path / "checksums.json").unlink()
    with torch.no_grad():
        expected = model(FRAMES, steps=6)
        for extra in range(0, 64, 8):
            save_file(tensors, tmp_path / "model.safetensors", metadata={"extra": "x" * extra})
            again = load_without_warnings(tmp_path)
            assert {parameter.data_ptr() % 64 for parameter in again.parameters()} == {0}
            assert torch.equal(again(FRAMES, steps=6), expected)


@pytest.mark.parametrize("characters", [0, 40])
@pytest.mark.parametrize("cell", [8, 20], ids=["plain", "projected"])
@pytest.mark.parametrize("heads", [["output"], []], ids=["output", "bare"])
def test_elmo(tmp_path: Path, characters: int, cell: int, heads: list[str]) -> None:
    config = ElmoConfig(vocab_size=53, num_characters=characters, hidden_size=8, cell_size=cell, num_hidden_layers=3)
    model = save_random_model(config, tmp_path, heads)
    again = load_without_warnings(tmp_path)
    words = IDS if not characters else torch.randint(1, 40, (3, 7, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for ours, expected in zip(again.states(words, LAYOUT), model.states(words, LAYOUT), strict=True):
            assert torch.equal(ours, expected)
    assert (again.output is None) == (not heads)
    assert_same(again, model)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_embeddings": False, "target_vocab_size": 41},
        {"norm_first": True, "final_norm": True, "hidden_act": "gelu"},
        {"arrangement": "halves", "layer_norm_eps": 1e-3, "decoder_start_token_id": 7},
    ],
)
def test_the_transformer_of_2017(tmp_path: Path, options: dict[str, Any]) -> None:
    config = TransformerConfig(**TEXT, **options)
    model = save_random_model(config, tmp_path)
    again = load_without_warnings(tmp_path)
    assert again.config == config
    with torch.no_grad():
        assert torch.equal(again.logits(again(IDS, IDS % 41, LAYOUT)), model.logits(model(IDS, IDS % 41, LAYOUT)))
        assert torch.equal(again.start(IDS, LAYOUT)[0], model.start(IDS, LAYOUT)[0])


def test_errors_of_families_specific_to_regard(tmp_path: Path) -> None:
    save_random_model(ElmoConfig(vocab_size=53, num_characters=0, hidden_size=8, cell_size=8), tmp_path)
    rewrite_tensors(tmp_path, renaming("encoder.forwards.0.weight_ih_l0", "encoder.forwards.0.weight"))
    expected_message = (
        r"config\.json: encoder\.forwards\.0\.weight_ih_l0 is missing; encoder\.forwards\.0\.weight is not expected$"
    )
    with pytest.raises(InputError, match=expected_message):
        read_model(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(document | {"cell_size": 4}))
    with pytest.raises(InputError, match=r"cell_size \(4\) .*at least hidden_size \(8\)"):
        read_model(tmp_path)
