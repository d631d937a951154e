"""Attention over long texts: tiles and overview equal the full map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.interpret.attention import long
from regard.interpret.attention.long import long_attention
from regard.models import Llama, LlamaConfig
from regard.text import Tokenizer

TEXT = "The king told the queen that he would leave his castle. " * 6


def full_map(model: Any, ids: list[int], layer: int, head: int) -> np.ndarray:
    with torch.no_grad(), regard.record(model) as tape:
        model(torch.tensor([ids]))
    weights: np.ndarray = tape.attention()[layer - 1][0, head].numpy()
    return weights


def tiny_llama(size: int, window: int | None, positions: int) -> Llama:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        max_position_embeddings=positions,
        sliding_window=window,
    )
    model = Llama(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


@pytest.fixture(scope="module")
def gpt() -> tuple[Any, Tokenizer]:
    model, tokenizer = regard.load("regard-gpt")
    assert tokenizer is not None
    return model, tokenizer


@pytest.mark.parametrize("kind", ["gpt", "bert", "window"])
def test_tiles_and_overview_equal_the_full_map(
    kind: str, gpt: tuple[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "OVERVIEW", 16)
    monkeypatch.setattr(long, "BLOCK", 24)
    model, tokenizer = regard.load("regard-bert") if kind == "bert" else gpt
    assert tokenizer is not None
    if kind == "window":
        model = tiny_llama(tokenizer.size, 5, 256)
    found = long_attention(LoadedModel("", model, tokenizer), TEXT, layer=2, head=3)
    ids = tokenizer.encode(TEXT).ids
    expected = full_map(model, ids, 2, 3)
    length = len(ids)
    np.testing.assert_allclose(found.tile(0, 0, length), expected, atol=1e-5)
    np.testing.assert_allclose(found.tile(20, 7, 9), expected[20:29, 7:16], atol=1e-5)
    assert found.tile(length - 2, 0, 9).shape == (2, 9)
    assert found.cell == -(-length // 16) > 1
    for row in range(len(found.overview)):
        for column in range(len(found.overview)):
            cells = expected[row * found.cell : (row + 1) * found.cell, column * found.cell : (column + 1) * found.cell]
            assert found.overview[row, column] == pytest.approx(cells.max(), abs=1e-5)
    special = np.array(tokenizer.encode(TEXT).special_tokens_mask)
    special[0] = True
    counted = np.where(special[:, None] | special[None] | np.eye(length, dtype=bool), 0, expected)
    assert found.strongest[0].weight == pytest.approx(counted.max(), abs=1e-5)
    weights = [link.weight for link in found.strongest]
    assert weights == sorted(weights, reverse=True)
    assert weights == pytest.approx([counted[link.row, link.column] for link in found.strongest], abs=1e-5)
    assert (kind == "bert") != found.causal and found.window == (4 if kind == "window" else None)


def test_size_of_8192_tokens(gpt: tuple[Any, Tokenizer]) -> None:
    _, tokenizer = gpt
    model = tiny_llama(tokenizer.size, None, 8192)
    text = "the king and the queen of the old castle " * 1200
    found = long_attention(LoadedModel("", model, tokenizer), text, layer=1, head=1)
    assert len(found.tokens) == 8192 and found.truncated > 0 and "truncated" in found.notes[0]
    assert found.overview.shape == (512, 512) and found.cell == 16
    assert found.tile(8000, 7900).shape == (192, 256)
    np.testing.assert_allclose(
        np.concatenate([found.tile(8191, c) for c in range(0, 8192, 256)], 1).sum(), 1, atol=1e-4
    )
    assert len(found.to_json()) < 4_000_000  # the map itself has 67 million weights


def test_views_and_errors(gpt: tuple[Any, Tokenizer], tmp_path: Path) -> None:
    model, tokenizer = gpt
    found = long_attention(LoadedModel("gpt", model, tokenizer), TEXT, layer=-1, head=0)
    assert found.layer == model.config.num_hidden_layers
    assert "strongest links" in found.to_text() and len(found.to_table()[1]) == len(found.strongest)
    found.save(tmp_path / "found.svg")
    assert "layer" in (tmp_path / "found.svg").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="no head 99"):
        long_attention(LoadedModel("", model, tokenizer), TEXT, layer=1, head=99)
    with pytest.raises(InputError, match="no layer 0"):
        long_attention(LoadedModel("", model, tokenizer), TEXT, layer=0, head=0)
    with pytest.raises(InputError, match="empty"):
        long_attention(LoadedModel("", model, tokenizer), " ", layer=1, head=0)
    vision, words = regard.load("regard-digits")
    with pytest.raises(InputError, match="needs a BERT or a GPT"):
        long_attention(LoadedModel("", vision, words), TEXT, layer=1, head=0)
