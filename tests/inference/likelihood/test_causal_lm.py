"""Scores of id rows equal sums of transformers' log-softmax, whatever the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import InputError
from regard.inference.causal_lm import CausalScorer, ScoredIds
from regard.nn.training import evaluation_mode
from tests.inference.conftest import Loaded
from tests.inference.likelihood.conftest import Reference


@st.composite
def scored_rows(draw: st.DrawFn) -> ScoredIds:
    ids = draw(st.lists(st.integers(0, 250), min_size=2, max_size=20))
    return ScoredIds(ids, draw(st.integers(1, len(ids) - 1)))


@settings(max_examples=25)
@given(rows=st.lists(scored_rows(), min_size=1, max_size=6), budget=st.integers(1, 60), chunk=st.integers(1, 30))
def test_scores_equal_transformers_for_any_batch(
    rows: list[ScoredIds], budget: int, chunk: int, gpt: Loaded, theirs: Reference
) -> None:
    scorer = CausalScorer.of(*gpt, doing="a test")
    with pytest.MonkeyPatch.context() as patch, evaluation_mode(gpt[0]):
        patch.setattr("regard.inference.causal_lm.BATCH_TOKENS", {"cpu": budget})
        patch.setattr("regard.inference.causal_lm.ROWS", chunk)
        found = scorer.score(rows)
    assert len(found) == len(rows)
    for row, one in zip(rows, found, strict=True):
        expected, greedy = theirs(list(row.ids), row.first_scored)
        assert one.log_probability == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert one.greedy == greedy


def test_greedy_choices_are_detected(gpt: Loaded, theirs: Reference) -> None:
    model, _ = gpt
    scorer = CausalScorer.of(*gpt, doing="a test")
    ids = [0, 5, 9]
    for _ in range(4):
        with torch.no_grad():
            ids.append(int(model.logits(model(torch.tensor([ids])))[0, -1].argmax()))  # type: ignore[operator]
    other = [*ids[:-2], (ids[-2] + 1) % 250, ids[-1]]
    with evaluation_mode(model):
        right, wrong, only_context = scorer.score([ScoredIds(ids, 3), ScoredIds(other, 3), ScoredIds(ids, 2)])
    assert (right.greedy, wrong.greedy) == (True, False)
    assert only_context.greedy == theirs(ids, 2)[1]


def test_non_causal_models_are_refused(bert: Loaded, gpt: Loaded) -> None:
    with pytest.raises(InputError, match=r"predicts the next token.*BERT"):
        CausalScorer.of(*bert, doing="a benchmark")
    with pytest.raises(InputError, match="has no tokenizer"):
        CausalScorer.of(gpt[0], None, doing="a benchmark")


def test_the_begin_token(gpt: Loaded, without_begin: Loaded) -> None:
    assert CausalScorer.of(*gpt, doing="a test").opening == [0]
    assert CausalScorer.of(*without_begin, doing="a test").opening == []
