"""Scores of lines, independent of the batch, compared with transformers and with perplexity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.data.rows import open_rows
from regard.errors import InputError
from regard.events import ResultItem
from regard.inference.likelihood import score_lines, scoring_events
from regard.models import T5, T5Config
from tests.inference.conftest import Loaded
from tests.inference.likelihood.conftest import Reference
from tests.inference.measure import measure_perplexity

LINES = ["the film", "", "a good day, é", "the the the"]


def test_each_line_equals_the_sum_of_transformers(gpt: Loaded, theirs: Reference) -> None:
    found = list(score_lines(*gpt, LINES))
    assert [one.line for one in found] == [1, 2, 3, 4]
    for text, one in zip(LINES, found, strict=True):
        body = gpt[1].encode(text, add_special_tokens=False).ids
        assert (one.tokens, one.unscored, one.long) == (len(body), 0, False)
        if body:
            assert one.log_probability == pytest.approx(theirs([0, *body], 1)[0], rel=1e-5)
            assert one.mean == pytest.approx(one.log_probability / len(body))
    assert (found[1].log_probability, found[1].tokens, found[1].mean) == (0.0, 0, None)


def test_a_long_line_is_read_in_the_windows_of_perplexity(gpt: Loaded) -> None:
    text = "the film was a good day and naïve, " * 6
    (found,) = score_lines(*gpt, [text])
    expected = measure_perplexity(*gpt, text)
    assert found.tokens == expected.tokens > 2 * 48
    assert found.long
    assert found.log_probability == pytest.approx(-expected.nll, rel=1e-6)


def test_without_a_begin_token_the_first_is_not_scored(without_begin: Loaded) -> None:
    body = without_begin[1].encode("the film").ids
    whole, single, blank = score_lines(*without_begin, ["the film", "a", ""])
    assert (whole.tokens, whole.unscored) == (len(body) - 1, 1)
    assert whole.log_probability == pytest.approx(-measure_perplexity(*without_begin, "the film").nll, rel=1e-6)
    assert (single.tokens, single.unscored, single.mean) == (0, 1, None)
    assert (blank.tokens, blank.unscored) == (0, 0)


def test_a_bert_masks_each_token(bert: Loaded) -> None:
    long = "the film was good " * 40
    found = list(score_lines(*bert, ["the film was good.", " ", long]))
    for one, text in ((found[0], "the film was good."), (found[2], long)):
        expected = measure_perplexity(*bert, text)
        assert (one.tokens, one.log_probability) == (expected.tokens, pytest.approx(-expected.nll, rel=1e-6))
    assert found[1].tokens == 0
    assert [one.long for one in found] == [False, False, True]


@settings(max_examples=20)
@given(lines=st.lists(st.text(max_size=70), min_size=1, max_size=8), at_once=st.integers(1, 8))
def test_scores_do_not_depend_on_the_batch(lines: list[str], at_once: int, gpt: Loaded) -> None:
    alone = [next(score_lines(*gpt, [line])) for line in lines]
    for together, one in zip(score_lines(*gpt, lines, at_once=at_once), alone, strict=True):
        assert together.log_probability == pytest.approx(one.log_probability, rel=1e-5, abs=1e-5)
        assert (together.tokens, together.long) == (one.tokens, one.long)


def test_on_every_device(gpt: Loaded, gpt_folder: Path, device: torch.device) -> None:
    there = score_lines(*regard.load(gpt_folder, device=device), LINES)
    for one, here in zip(there, score_lines(*gpt, LINES), strict=True):
        assert one.log_probability == pytest.approx(here.log_probability, rel=1e-4)


def test_lines_are_read_lazily(gpt: Loaded) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "the film"

    scores = score_lines(*gpt, endless(), at_once=3)
    assert [next(scores).line, next(scores).line] == [1, 2]
    assert taken == 3


def test_a_model_without_a_vocabulary_is_refused(gpt: Loaded) -> None:
    t5 = T5(
        T5Config(
            vocab_size=200,
            hidden_size=16,
            num_hidden_layers=1,
            num_decoder_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    with pytest.raises(InputError, match=r"scoring needs .*predicts the next token, .*T5"):
        next(score_lines(t5, gpt[1], LINES))


def test_training_mode_is_restored(gpt: Loaded) -> None:
    model, tokenizer = gpt
    expected = next(score_lines(model, tokenizer, LINES))
    model.train()
    try:
        assert next(score_lines(model, tokenizer, LINES)) == expected  # dropout is off
        assert model.training
        assert not torch.is_inference_mode_enabled()
    finally:
        model.eval()


def test_rows_without_a_text_have_no_score(gpt: Loaded) -> None:
    rows = ["the film", "", None, "dull"]
    scores = [event.item for event in scoring_events(*gpt, open_rows(rows)) if isinstance(event, ResultItem)]
    assert [(score.line, score.log_probability is None, score.tokens > 0) for score in scores] == [
        (1, False, True),
        (2, True, False),
        (3, True, False),
        (4, False, True),
    ]
    skipped = list(scoring_events(*gpt, open_rows(rows), missing="skip"))
    assert [event.item.line for event in skipped if isinstance(event, ResultItem)] == [1, 4]
    with pytest.raises(InputError, match="no row with a text"):
        list(scoring_events(*gpt, open_rows(["", None])))
