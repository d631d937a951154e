"""Alignments: the attention of a decoding, aggregated by words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.inference.translation import translator as align
from regard.inference.translation.translator import (
    Alignment,
    AlignmentHeads,
    Translator,
    check_has_attention,
    load_translator,
)
from regard.models import Seq2Seq
from regard.nn.recording import record

TEXT = "the small dog sleeps"


@pytest.fixture(params=["transformer", "lstm"])
def translator(request: pytest.FixtureRequest, folders: dict[str, Path], randomized: Callable[..., Any]) -> Translator:
    found = load_translator(folders[request.param])
    randomized(found.model)
    return found


def test_alignment_equals_the_attention_of_step_by_step_decoding(translator: Translator) -> None:
    """The decoder uses its cache and its own output tokens."""
    ids = translator.encode_translation("der kleine Hund schläft")
    source = translator.subwords.encode_sources([TEXT])
    with torch.no_grad(), record(translator.model) as tape:
        _, state = translator.model.start(torch.tensor(source))
        for token in ids:
            _, state = translator.model.step(torch.tensor([token]), state)  # type: ignore[arg-type]
    layer = tape.attention("cross", "decoder")[translator.alignment_heads.layer - 1]
    expected = layer[0].mean(0).double()
    assert expected.shape == (len(ids) + 1, len(source[0]))
    found = align._cross_attention(
        translator.model, source[0], [*ids, translator.subwords.end], translator.alignment_heads
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_weights_sum_to_one_and_words_are_separated_by_spaces(translator: Translator) -> None:
    found = translator.align(TEXT, translator.encode_translation("Das  Häuschen, ß 😀!"))
    assert found.source == TEXT.split() and found.target == ["Das", "Häuschen,", "ß", "😀!"]
    for row, outside in zip(found.weights, found.outside, strict=True):
        assert sum(row) == pytest.approx(1) and min(row) >= 0 and 0 <= outside < 1
    assert [pair.split("-")[1] for pair in found.pharaoh().split()] == ["0", "1", "2", "3"]


def test_pieces_are_summed_over_the_source_and_averaged_over_the_target(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: two source words of 1 and 2 pieces and an end, one target word of 2 pieces and another of 1."""
    attention_weights = torch.tensor(
        [[0.5, 0.1, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4], [0.8, 0.1, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]],
        dtype=torch.float64,
    )
    word_indices_by_side = iter([[0, 0, 1], [0, 1, 1]])
    monkeypatch.setattr(align, "_cross_attention", lambda *given: attention_weights)
    monkeypatch.setattr(align, "word_indices", lambda *given: next(word_indices_by_side))
    monkeypatch.setattr(type(translator.subwords), "encode_sources", lambda self, texts: [[1, 2, 3, 0]])
    monkeypatch.setattr(type(translator.subwords.source), "decode", lambda self, ids: "x y")
    found = translator.align("x y", [4, 5, 6])
    assert found.outside == pytest.approx([0.3, 0.0])
    assert found.weights[0] == pytest.approx([0.3 / 0.7, 0.4 / 0.7])
    assert found.weights[1] == pytest.approx([0.8, 0.2])
    assert found.pharaoh() == "1-0 0-1"


def test_nothing_to_align(translator: Translator) -> None:
    assert translator.align(TEXT, []) == Alignment(TEXT.split(), [], [], [])
    assert translator.align("", translator.encode_translation("Hund")).pharaoh() == ""


def test_layer_and_head_selection(folders: dict[str, Path]) -> None:
    translator = load_translator(folders["transformer"])  # of two layers and two heads
    assert translator.alignment_heads == AlignmentHeads(1, (0, 1))
    assert all(part in str(translator.alignment_heads) for part in ("mean", "heads 0, 1 ", "decoder layer 1"))
    maps = [
        replace(translator, alignment_heads=AlignmentHeads(layer, heads))
        .align(TEXT, translator.encode_translation("der Hund"))
        .weights
        for layer, heads in ((1, (0,)), (1, (1,)), (2, (0,)), (1, (0, 1)))
    ]
    assert len({str(one) for one in maps}) == 4
    with pytest.raises(InputError, match=r"layer 3, heads \[0\].*layers 1 to 2 of 2"):
        replace(translator, alignment_heads=AlignmentHeads(3, (0,))).align(
            TEXT, translator.encode_translation("der Hund")
        )


def test_a_model_without_attention_has_no_alignment(folders: dict[str, Path]) -> None:
    model = load_translator(folders["lstm"]).model
    assert isinstance(model, Seq2Seq)
    check_has_attention(model)
    with pytest.raises(InputError, match=r"no attention \(model\.score is none\)"):
        check_has_attention(Seq2Seq(replace(model.config, score="none")))
