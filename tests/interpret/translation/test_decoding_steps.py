"""Decoding steps: tokens with probabilities, subwords and words, and invalid input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import Translator
from regard.interpret.translation import (
    MAX_SOURCE_TOKENS,
    NUM_LIKELIEST,
    SubwordTokens,
    replay_translations,
    translate_in_steps,
)
from regard.nn.masks import Padded

TEXT = "a dog sees the red house"


def test_probabilities_are_those_of_the_search(translator: Translator) -> None:
    found = translate_in_steps(translator, TEXT, beam=Beam(num_beams=3, num_return_sequences=3))
    assert [decoded.translation for decoded in found.hypotheses] == translator.translate(
        [TEXT], beam=Beam(num_beams=3, num_return_sequences=3)
    )[0]
    for decoded in found.hypotheses:
        total = sum(math.log(step.probability) for step in decoded.steps)
        assert total == pytest.approx(decoded.translation.log_probability, abs=1e-3)
        ids = [*decoded.translation.ids, *([translator.subwords.end] if decoded.translation.finished else [])]
        assert len(decoded.steps) == len(ids) == len(decoded.pieces.tokens)
        with torch.inference_mode():
            source = torch.tensor(translator.subwords.encode_sources([TEXT]))
            shares = (
                translator.model.teacher_forced_logits(source, Padded(), torch.tensor([ids]))[0].double().softmax(-1)
            )
        for step, token, row in zip(decoded.steps, ids, shares, strict=True):
            assert step.probability == pytest.approx(float(row[token]), abs=1e-6)
            best = row.topk(NUM_LIKELIEST).values.tolist()
            assert [one.probability for one in step.likeliest] == pytest.approx(best, abs=1e-6)


def test_greedy_decoding_selects_the_likeliest_tokens(translator: Translator) -> None:
    [decoded] = translate_in_steps(translator, TEXT).hypotheses
    assert [step.token for step in decoded.steps] == [step.likeliest[0].token for step in decoded.steps]


def test_word_weights_equal_the_alignment(translator: Translator) -> None:
    """Aggregated as on the page: sums over a source word, means over a target word, without the end token."""
    found = translate_in_steps(translator, TEXT, beam=Beam(num_beams=3, num_return_sequences=3))
    layer, heads = translator.alignment_heads.layer, list(translator.alignment_heads.heads)
    for decoded in found.hypotheses:
        assert decoded.attention is not None
        expected = translator.align(TEXT, decoded.translation.ids)
        assert [list(found.source.words), list(decoded.pieces.words)] == [expected.source, expected.target]
        weights = decoded.attention.weights[layer - 1, heads].mean(0).astype(np.float64)
        columns = np.zeros((weights.shape[1], len(found.source.words) + 1))
        columns[np.arange(len(columns)), [*found.source.word_indices, len(found.source.words)]] = 1
        rows = np.zeros((len(decoded.pieces.words), weights.shape[0]))
        rows[list(decoded.pieces.word_indices), np.arange(len(decoded.pieces.word_indices))] = 1
        gathered = rows / np.maximum(rows.sum(1, keepdims=True), 1) @ weights @ columns
        np.testing.assert_allclose(gathered[:, -1], expected.outside, atol=1e-5)
        shares = gathered[:, :-1] / np.maximum(gathered[:, :-1].sum(1, keepdims=True), 1e-12)
        np.testing.assert_allclose(shares, expected.weights, atol=1e-5)


def test_source_subwords_end_with_the_end_token(make_translator: Callable[[str], Translator]) -> None:
    translator = make_translator("transformer")
    source = translate_in_steps(translator, "a dög").source
    assert source.words == ["a", "dög"] and len(source.word_indices) == len(source.tokens) - 1
    assert source.word_indices[0] == 0 and source.word_indices[-1] == 1 and source.tokens[-1] == "<|endoftext|>"


def test_empty_and_truncated_translations(make_translator: Callable[[str], Translator]) -> None:
    translator = make_translator("transformer")
    [found] = translator.translate([TEXT])[0]
    ids = tuple(translator.encode_translation("ein Hund"))
    ended, cut = (replace(found, text="", ids=(), finished=True), replace(found, text="x", ids=ids, finished=False))
    shown = replay_translations(translator, TEXT, [ended, cut])
    assert shown.hypotheses[0].pieces == SubwordTokens(["<|endoftext|>"], [], [])
    assert len(shown.hypotheses[0].steps) == 1
    assert shown.hypotheses[1].pieces.words == ["ein", "Hund"] and len(shown.hypotheses[1].steps) == len(ids)


def test_model_without_attention_has_steps_but_no_weights(make_translator: Callable[[str], Translator]) -> None:
    found = translate_in_steps(make_translator("lstm none"), TEXT, beam=Beam(num_beams=2, num_return_sequences=2))
    assert found.encoder is None and all(decoded.attention is None and decoded.steps for decoded in found.hypotheses)


def test_invalid_input_is_rejected(make_translator: Callable[[str], Translator]) -> None:
    translator = make_translator("transformer")
    with pytest.raises(InputError, match="the text is empty"):
        translate_in_steps(translator, " \n")
    long = replace(translator, max_length=2 * MAX_SOURCE_TOKENS)  # otherwise it is cut, and the first part is shown
    with pytest.raises(InputError, match=f"expected at most {MAX_SOURCE_TOKENS}: give one"):
        translate_in_steps(long, "house " * MAX_SOURCE_TOKENS)
