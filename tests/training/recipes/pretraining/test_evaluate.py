"""Evaluation compared with plain loops; it uses the same inputs for every model and changes no state."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.models import T5, Bert, BertConfig, Elmo, ElmoConfig, Gpt, GptConfig, T5Config
from regard.training.recipes.pretraining import evaluate
from regard.training.recipes.pretraining.evaluate import (
    bidirectional_scores,
    masked_lm_score,
    next_sentence_pairs,
    next_sentence_score,
    next_token_score,
    perplexity_score,
    rows_with_special_tokens,
    span_score,
)
from regard.training.recipes.pretraining.row_sampler import FOLLOWS, OTHER
from regard.training.recipes.pretraining.span_corruption import SpanCorruption, SpanSizes
from regard.training.recipes.pretraining.token_stream import TokenStream
from tests.training.recipes.pretraining.texts import CLS, DOCUMENTS, FIRST, MASK, SEP, TOKENIZER, token_stream

BOOK = [[3, 4, 5, 2], [6, 1], [4, 4, 4], [7], [2, 2, 2, 2, 2]] * 4
TEXT = token_stream(BOOK, pieces=3)
VOCABULARY = TEXT.tokens + FIRST
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 32,
}
MASKING = Masking(torch.arange(VOCABULARY) < FIRST, mask=MASK)
Randomise = Callable[..., Any]


@pytest.fixture
def bert(randomized: Randomise) -> Bert:
    model: Bert = randomized(Bert(BertConfig(**SHAPE)))
    return model


@pytest.fixture
def gpt(randomized: Randomise) -> Gpt:
    model: Gpt = randomized(Gpt(GptConfig(**SHAPE)))
    return model


def stream(count: int) -> list[int]:
    return list(range(FIRST, FIRST + count))


def log_softmax(scores: list[float], at: int) -> float:
    largest = max(scores)
    return scores[at] - largest - math.log(sum(math.exp(score - largest) for score in scores))


def test_rows_are_running_text_with_cls_and_sep() -> None:
    ids = rows_with_special_tokens(TEXT, TOKENIZER, length=12, rows=5)
    assert ids.tolist() == [[CLS, *stream(50)[10 * row : 10 * row + 10], SEP] for row in range(5)]
    count = TEXT.tokens // 10
    assert rows_with_special_tokens(TEXT, TOKENIZER, length=12, rows=999).shape == (count, 12)
    assert rows_with_special_tokens(TEXT, TOKENIZER, length=12, rows=count)[-1, -2] == FIRST + 10 * count - 1


@pytest.mark.parametrize("tokens", [12, 24, 1 << 15])
def test_masked_lm_score_against_single_rows(bert: Bert, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    monkeypatch.setattr(evaluate, "TOKENS", tokens)
    found = masked_lm_score(bert, MASKING, TEXT, TOKENIZER, length=12, rows=7, seed=3)
    bert.eval()
    ids = rows_with_special_tokens(TEXT, TOKENIZER, length=12, rows=7)
    masked = MASKING(ids, torch.Generator().manual_seed(3))
    assert masked.targets.tolist().count(IGNORE_INDEX) == 0
    losses, right = [], 0
    for position, target in zip(masked.positions.tolist(), masked.targets.tolist(), strict=True):
        hidden = bert(masked.ids[position // 12][None])[0, position % 12]
        assert bert.mlm_head is not None
        scores = bert.mlm_head(hidden).tolist()
        losses.append(-log_softmax(scores, target))
        right += scores.index(max(scores)) == target
    assert found["count"] == len(losses) == round(0.15 * 70)
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["accuracy"] == right / len(losses)


def test_accuracy_of_a_perfect_model(bert: Bert) -> None:
    with torch.no_grad():
        bert.mlm_head.bias[FIRST + 3] = 1e4  # type: ignore[union-attr]
    only = token_stream([[50]])
    only.pieces[0][:] = FIRST + 3
    found = masked_lm_score(bert, MASKING, only, TOKENIZER, length=12)
    assert (found["loss"], found["accuracy"]) == (0.0, 1.0)


def test_the_same_tokens_are_masked_whatever_the_training_masks(bert: Bert) -> None:
    continues = torch.arange(VOCABULARY) % 2 == 0
    whole = Masking(MASKING.special, mask=MASK, continues=continues)
    options = {"length": 12, "rows": 7}
    assert masked_lm_score(bert, whole, TEXT, TOKENIZER, **options) == masked_lm_score(
        bert, MASKING, TEXT, TOKENIZER, **options
    )
    assert masked_lm_score(bert, MASKING, TEXT, TOKENIZER, seed=1, **options) != masked_lm_score(
        bert, MASKING, TEXT, TOKENIZER, **options
    )


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_changes_no_state(bert: Bert, gpt: Gpt, training: bool) -> None:
    bert.train(training), gpt.train(training)
    bert.embedding.train(not training)  # as when only a part is trained
    modes = [[part.training for part in model.modules()] for model in (bert, gpt)]
    rng_state = torch.get_rng_state()
    before = [parameter.clone() for parameter in bert.parameters()]
    scores, learning = [], []
    bert.register_forward_hook(lambda *_: learning.append(torch.is_grad_enabled()))
    gpt.register_forward_hook(lambda *_: learning.append(torch.is_grad_enabled()))
    for _ in range(2):  # equal results: no dropout, and the weights did not change
        with torch.enable_grad():
            score = (
                masked_lm_score(bert, MASKING, TEXT, TOKENIZER, length=12),
                next_sentence_score(bert, TEXT, TOKENIZER, length=16, count=10),
            )
        scores.append((*score, next_token_score(gpt, TEXT, length=12)))
    assert scores[0] == scores[1]
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert modes == [[part.training for part in model.modules()] for model in (bert, gpt)]
    assert all(map(torch.equal, before, bert.parameters()))
    assert learning and not any(learning)


def test_modes_are_restored_after_an_error(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert.mlm_head, "forward", lambda hidden: 1 / 0)
    bert.train()
    with pytest.raises(ZeroDivisionError):
        masked_lm_score(bert, MASKING, TEXT, TOKENIZER, length=12)
    assert all(part.training for part in bert.modules()) and torch.is_grad_enabled()


def test_a_text_shorter_than_a_row_is_refused(bert: Bert) -> None:
    with pytest.raises(InputError, match="9 tokens, too few for one row of 10"):
        masked_lm_score(bert, MASKING, token_stream([[4, 5]]), TOKENIZER, length=12)
    assert masked_lm_score(bert, MASKING, token_stream([[4, 6]]), TOKENIZER, length=12)["count"] == 2


def test_a_text_of_special_tokens_is_refused(bert: Bert) -> None:
    text = token_stream([[30]])
    text.pieces[0][:] = 5
    with pytest.raises(InputError, match="no token that could be masked"):
        masked_lm_score(bert, MASKING, text, TOKENIZER, length=12)


def sentences_of(text: TokenStream, ids: list[int]) -> list[int]:
    """The indices of the consecutive, complete sentences that these ids consist of."""
    start, stop = ids[0] - FIRST, ids[-1] - FIRST + 1
    assert ids == list(range(FIRST + start, FIRST + stop))
    sentence_starts = text.sentences.tolist()
    return list(range(sentence_starts.index(start), sentence_starts.index(stop)))


@given(DOCUMENTS, st.integers(1, 3), st.integers(8, 40), st.integers(0, 2**63 - 1))
def test_properties_of_all_pairs(documents: list[list[int]], pieces: int, length: int, seed: int) -> None:
    text = token_stream(documents, pieces=pieces)
    try:
        found = next_sentence_pairs(text, TOKENIZER, length=length, count=20, seed=seed)
    except InputError:
        assume(False)
    assert 2 <= len(found) <= 20
    home = [number for number, document in enumerate(documents) for _ in document]
    for number, (ids, second, label) in enumerate(found):
        assert label == (FOLLOWS, OTHER)[number % 2]
        assert len(ids) <= length
        assert (ids[0], ids[second - 1], ids[-1]) == (CLS, SEP, SEP)
        a, b = sentences_of(text, ids[1 : second - 1]), sentences_of(text, ids[second:-1])
        assert len({home[one] for one in a}) == len({home[one] for one in b}) == 1
        assert home[a[-1] + 1 :][:1] == [home[a[0]]]  # A never ends its document, which would reveal the label
        if label == FOLLOWS:
            assert b[0] == a[-1] + 1 and home[a[0]] == home[b[0]]
        else:
            assert home[a[0]] != home[b[0]]


def test_there_are_many_different_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "TRIES", 9)  # consecutive failures, not the total
    text = token_stream([[2, 2, 2, 2, 2, 2]] * 10)
    found = next_sentence_pairs(text, TOKENIZER, length=19, count=400, seed=0)
    assert len(found) == 400
    assert {second - 2 for _, second, _ in found} == {2, 4, 6, 8}  # one to four sentences, half of the room
    assert max(len(ids) for ids, _, _ in found) == 19
    assert {(ids[1] - FIRST) % 12 for ids, _, label in found if label == OTHER} == {0, 2, 4, 6, 8}
    assert {(ids[second] - FIRST) % 12 for ids, second, label in found if label == OTHER} == {0, 2, 4, 6, 8, 10}
    assert found == next_sentence_pairs(text, TOKENIZER, length=19, count=400, seed=0)
    assert found != next_sentence_pairs(text, TOKENIZER, length=19, count=400, seed=1)


def test_a_false_b_may_come_from_a_document_of_one_sentence() -> None:
    found = next_sentence_pairs(token_stream([[3, 3], [4]]), TOKENIZER, length=16, count=10)
    assert [(ids[second] - FIRST) for ids, second, label in found if label == OTHER] == [6] * 5


@pytest.mark.parametrize(
    "documents", [[[3, 3, 3]], [[3], [4], [5]], [[8, 9], [10, 11]], [[3, 3], [50]]], ids=["one", "single", "long", "B"]
)
def test_a_text_without_pairs_is_refused(bert: Bert, documents: list[list[int]]) -> None:
    with pytest.raises(InputError, match="gives no pairs: they need two documents"):
        next_sentence_score(bert, token_stream(documents), TOKENIZER, length=16)


def test_a_text_with_few_possible_pairs_gives_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search gives up eventually, and half of the pairs found are still true."""
    monkeypatch.setattr(evaluate, "TRIES", 3)
    text = token_stream([[1, 1], [40, 40], [1, 1]])
    counts = set()
    for seed in range(100):
        with suppress(InputError):
            counts.add(len(next_sentence_pairs(text, TOKENIZER, length=16, count=50, seed=seed)))
    assert counts and all(2 <= count < 50 and count % 2 == 0 for count in counts)


@pytest.mark.parametrize("tokens", [16, 50, 1 << 15])
def test_pairs_compared_with_single_pairs(bert: Bert, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    monkeypatch.setattr(evaluate, "TOKENS", tokens)
    found = next_sentence_score(bert, TEXT, TOKENIZER, length=16, count=11, seed=2)
    bert.eval()
    losses, right = [], 0
    assert bert.pooler is not None and bert.nsp_head is not None
    for ids, second, label in next_sentence_pairs(TEXT, TOKENIZER, length=16, count=11, seed=2):
        segments = torch.tensor([[0] * second + [1] * (len(ids) - second)])
        hidden = bert(torch.tensor([ids]), None, segments)
        scores = bert.nsp_head(torch.tanh(bert.pooler.linear(hidden[0, 0]))).tolist()
        losses.append(-log_softmax(scores, label))
        right += scores.index(max(scores)) == label
    assert found["count"] == 11
    assert found["loss"] == pytest.approx(sum(losses) / 11, rel=1e-5)
    assert found["accuracy"] == right / 11


@pytest.mark.parametrize(("length", "rows"), [(12, 5), (12, 999), (5, 3), (999, 2)])
def test_next_tokens_compared_with_single_steps(gpt: Gpt, length: int, rows: int) -> None:
    text = TEXT if length < 999 else token_stream([[9, 8], [7]], pieces=2)
    found = next_token_score(gpt, text, length=length, rows=rows)
    gpt.eval()
    size = min(length, text.tokens)
    count = min(rows, text.tokens // size)
    losses = []
    for row in range(count):
        ids = stream(text.tokens)[row * size : row * size + size]
        for at in range(1, size):
            scores = gpt.logits(gpt(torch.tensor([ids[:at]]))[0, -1]).tolist()
            losses.append(-log_softmax(scores, ids[at]))
    assert found["count"] == len(losses) == count * (size - 1)
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))


@pytest.mark.parametrize("rows", [3, 999])
def test_both_directions_compared_with_single_steps(rows: int, randomized: Randomise) -> None:
    shape = ElmoConfig(
        vocab_size=VOCABULARY, num_characters=0, hidden_size=6, cell_size=6, num_hidden_layers=2, dropout=0.3
    )
    model: Elmo = randomized(Elmo(shape))
    ahead, back = bidirectional_scores(model, TEXT, TOKENIZER, length=9, rows=rows)
    model.eval()
    losses: list[list[float]] = [[], []]
    for row in rows_with_special_tokens(TEXT, TOKENIZER, length=9, rows=rows).tolist():
        for at in range(1, 8):
            scores = model.logits(model(torch.tensor([row[:at]]))[0, -1])[0].tolist()
            losses[0].append(-log_softmax(scores, row[at]))
            scores = model.logits(model(torch.tensor([row[at + 1 :]]))[0, 0])[1].tolist()
            losses[1].append(-log_softmax(scores, row[at]))
    for found, expected in zip((ahead, back), losses, strict=True):
        assert found["count"] == len(expected) == min(rows, TEXT.tokens // 7) * 7
        assert found["loss"] == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_span_corruption_compared_with_single_steps(randomized: Randomise) -> None:
    shape = T5Config(
        vocab_size=VOCABULARY + 20,
        hidden_size=8,
        head_dim=4,
        num_hidden_layers=2,
        num_decoder_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
    )
    model: T5 = randomized(T5(shape))
    sizes = SpanSizes.filling(14, rate=0.3, span=2.0)
    corruption = SpanCorruption(sizes, sentinels=[*range(VOCABULARY + 19, VOCABULARY, -1)], end=1)
    found = span_score(model, corruption, TEXT, rows=2, seed=5)
    model.eval()
    ids = torch.tensor(stream(2 * sizes.tokens)).view(2, -1)
    token_stream = corruption(ids, torch.Generator().manual_seed(5))
    losses = []
    for given_row, target in zip(token_stream.inputs, token_stream.targets.tolist(), strict=True):
        logits, state = model.start(given_row[None])
        for token in target:
            losses.append(-log_softmax(logits[0].tolist(), token))
            logits, state = model.step(torch.tensor([token]), state)
    assert found["count"] == len(losses) == 2 * sizes.targets
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_a_huge_perplexity_does_not_overflow() -> None:
    assert math.isfinite(perplexity_score(1e6, 1)["perplexity"])


def test_a_text_without_a_next_token_is_refused(gpt: Gpt) -> None:
    with pytest.raises(InputError, match="1 tokens, and no next one"):
        next_token_score(gpt, token_stream([[1]]), length=12)
    assert next_token_score(gpt, token_stream([[2]]), length=12)["count"] == 1
