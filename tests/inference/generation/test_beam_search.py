"""Greedy and beam search: against enumeration, for every family, batched and alone."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from regard.errors import InputError, RegardError
from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.inference.generation.decoder import as_decoder
from regard.models import Bert, BertConfig
from regard.nn.masks import Padded
from tests.inference.generation.models import FAMILIES, VOCABULARY, Chain, family

END = 0
PROMPTS = [[1, 2], [3, 1], [2, 2]]


def every_text(vocabulary: int, length: int) -> list[list[int]]:
    """All texts of up to `length` tokens: those that end, and those cut off at the maximum length."""
    words = range(1, vocabulary)
    ended = [[*text, END] for size in range(length) for text in itertools.product(words, repeat=size)]
    return [*ended, *(list(text) for text in itertools.product(words, repeat=length))]


@pytest.mark.parametrize("penalty", [-0.7, 0.0, 1.0, 2.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_all_texts_is_exhaustive_search(penalty: float, seed: int) -> None:
    vocabulary, length, nbest = 4, 3, 9
    model = Chain(vocabulary, seed=seed)
    beam = Beam(num_beams=vocabulary**length, length_penalty=penalty, num_return_sequences=nbest, wide=True)
    found = beam_search(model, torch.tensor(PROMPTS), beam=beam, end=END, max_new_tokens=length)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        texts = every_text(vocabulary, length)
        totals = {tuple(text): model.log_probability(prompt, text) for text in texts}
        best = sorted(texts, key=lambda text: -totals[tuple(text)] / len(text) ** penalty)[:nbest]
        assert [tokens_of(one) for one in hypotheses] == best
        for one, text in zip(hypotheses, best, strict=True):
            assert one.log_probability == pytest.approx(totals[tuple(text)], abs=1e-5)
            assert one.score == pytest.approx(totals[tuple(text)] / len(text) ** penalty, abs=1e-5)


def tokens_of(one: Hypothesis) -> list[int]:
    return [*one.ids, END] if one.finished else list(one.ids)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_two_tokens(seed: int) -> None:
    model = Chain(7, seed=seed)
    (found,) = beam_search(model, torch.tensor([[1, 2]]), beam=Beam(num_beams=7), end=END, max_new_tokens=2)
    best = max(every_text(7, 2), key=lambda text: model.log_probability([1, 2], text) / len(text))
    assert tokens_of(found[0]) == best


def test_a_wider_beam_finds_what_greedy_misses() -> None:
    """The likeliest first token leads to uniform probabilities, the second likeliest to a certain end."""
    model = Chain(4, seed=0)
    model.table[:] = torch.tensor([0.0, 0.0, 0.0, 0.0])
    model.table[1, 2] = torch.tensor([0.05, 0.5, 0.4, 0.05]).log()
    model.table[2, 2] = torch.tensor([0.97, 0.01, 0.01, 0.01]).log()
    prompt = torch.tensor([[1, 2]])
    (one,) = greedy_search(model, prompt, end=END, max_new_tokens=2)
    assert one.ids[0] == 1 and one.log_probability == pytest.approx(math.log(0.5) + math.log(0.25))
    (found,) = beam_search(model, prompt, beam=Beam(num_beams=2, num_return_sequences=2), end=END, max_new_tokens=2)
    assert (found[0].ids, found[0].finished) == ((2,), True)
    assert found[0].log_probability == pytest.approx(math.log(0.4 * 0.97))
    assert found[0].score == pytest.approx(math.log(0.4 * 0.97) / 2)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_is_the_same_alone_and_in_a_batch(name: str, device: torch.device) -> None:
    model = family(name).to(device)
    lengths = [5, 2, 4]
    ids, layout = torch.randint(1, VOCABULARY, (3, 5), device=device), Padded.from_lengths(lengths, device=device)
    beam = Beam(num_beams=4, num_return_sequences=3)
    together = beam_search(model, ids, layout, beam=beam, end=END, max_new_tokens=8)
    likeliest = greedy_search(model, ids, layout, end=END, max_new_tokens=8)
    for row, length in enumerate(lengths):
        alone = beam_search(model, ids[row : row + 1, :length], beam=beam, end=END, max_new_tokens=8)[0]
        assert [one.ids for one in together[row]] == [one.ids for one in alone]
        assert [one.score for one in together[row]] == pytest.approx([one.score for one in alone], abs=1e-4)
        single = greedy_search(model, ids[row : row + 1, :length], end=END, max_new_tokens=8)[0]
        assert single.ids == likeliest[row].ids
    assert len({one[0].ids for one in together}) > 1, "all rows give the same tokens: nothing is compared"


@pytest.mark.parametrize("name", FAMILIES)
def test_log_probabilities_equal_those_of_the_model(name: str) -> None:
    """Scoring each hypothesis token by token gives the log-probability that the search reports."""
    model = family(name)
    ids = torch.randint(1, VOCABULARY, (1, 5))
    (found,) = beam_search(
        model, ids, beam=Beam(num_beams=4, num_return_sequences=4, length_penalty=0.6), end=END, max_new_tokens=6
    )
    for one in [*found, *greedy_search(model, ids, end=END, max_new_tokens=6)]:
        with torch.no_grad():
            logits, state = model.start(ids)
            total = 0.0
            for token in tokens_of(one):
                total += float(logits.log_softmax(-1)[0, token])
                logits, state = model.step(torch.tensor([token]), state)
        assert one.log_probability == pytest.approx(total, abs=1e-4)
    assert [one.score for one in found] == pytest.approx(
        [one.log_probability / len(tokens_of(one)) ** 0.6 for one in found]
    )


def test_a_beam_of_one_is_greedy() -> None:
    for seed in range(5):
        model = Chain(9, seed=seed)
        (found,) = beam_search(model, torch.tensor([[1, 2]]), beam=Beam(num_beams=1), end=END, max_new_tokens=12)
        (one,) = greedy_search(model, torch.tensor([[1, 2]]), end=END, max_new_tokens=12)
        assert (found[0].ids, found[0].finished) == (one.ids, one.finished)
        assert found[0].score == pytest.approx(one.score)


def test_finished_rows_are_not_computed() -> None:
    model = Chain(5, seed=0)
    model.table[:] = torch.tensor([-20.0, 1.0, 2.0, 0.0, 0.0])
    model.table[3, 3] = torch.tensor([20.0, 0.0, 0.0, 0.0, 0.0])
    prompts = torch.tensor([[3, 3], [1, 2], [3, 3]])
    rows = greedy_search(model, prompts, end=END, max_new_tokens=4)
    assert [one.ids for one in rows] == [(), (2, 2, 2, 2), ()]
    assert [one.finished for one in rows] == [True, False, True]
    assert model.rows == [3, 1, 1, 1]
    model.rows.clear()
    beam_search(model, prompts, beam=Beam(num_beams=1), end=END, max_new_tokens=4)
    assert model.rows == [3, 1, 1, 1]


def test_early_stops_with_the_first_hypotheses() -> None:
    """Two hypotheses end at once; a far better one continues and is found unless `early` is set."""
    model = Chain(4, seed=0)
    model.table[:] = torch.tensor([0.3, 0.2, 0.3, 0.2]).log()
    model.table[1, 2] = torch.tensor([0.3, 0.6, 0.05, 0.05]).log()
    model.table[2, 1] = torch.tensor([0.30, 0.4, 0.2, 0.1]).log()
    model.table[1, 1] = torch.tensor([0.999, 0.0004, 0.0003, 0.0003]).log()
    prompt = torch.tensor([[1, 2]])
    (early,) = beam_search(
        model, prompt, beam=Beam(num_beams=2, num_return_sequences=2, early_stopping=True), end=END, max_new_tokens=6
    )
    assert {one.ids for one in early} == {(), (1,)}
    (late,) = beam_search(model, prompt, beam=Beam(num_beams=2, num_return_sequences=2), end=END, max_new_tokens=6)
    assert late[0].ids == (1, 1) and late[0].score > early[0].score


def test_without_an_end_token_max_new_tokens_is_reached() -> None:
    model = Chain(6, seed=1)
    (found,) = beam_search(
        model, torch.tensor([[1, 2]]), beam=Beam(num_beams=3, num_return_sequences=3), end=None, max_new_tokens=5
    )
    assert [len(one.ids) for one in found] == [5, 5, 5] and not any(one.finished for one in found)
    assert len({one.ids for one in found}) == 3
    (one,) = greedy_search(model, torch.tensor([[1, 2]]), end=None, max_new_tokens=5)
    assert len(one.ids) == 5 and not one.finished


def test_dropout_is_off_and_the_training_mode_is_restored() -> None:
    model = family("transformer")
    ids = torch.randint(1, VOCABULARY, (1, 5))
    expected = greedy_search(model, ids, end=END, max_new_tokens=6)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    model.train()
    assert greedy_search(model, ids, end=END, max_new_tokens=6) == expected
    assert model.training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams is 0; expected at least 1"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences is 3"),
        ({"num_return_sequences": 0}, "expected 1 to 5"),
        ({"length_penalty": math.inf}, "length penalty is inf"),
        ({"length_penalty": math.nan}, "length penalty is nan"),
    ],
)
def test_invalid_beams(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Beam(**settings)  # type: ignore[arg-type]


def test_invalid_input_is_refused() -> None:
    model, prompt = Chain(4), torch.tensor([[1, 2]])
    with pytest.raises(InputError, match="num_beams is 5, and the vocabulary has only 4 tokens"):
        beam_search(model, prompt, beam=Beam(num_beams=5), end=END, max_new_tokens=3)
    for call in (lambda: greedy_search(model, prompt, end=END, max_new_tokens=0),):
        with pytest.raises(InputError, match="max_new_tokens is 0"):
            call()
    with pytest.raises(InputError, match="max_new_tokens is -1"):
        beam_search(model, prompt, beam=Beam(num_beams=2), end=END, max_new_tokens=-1)
    model.table[1, 2, 3] = math.nan
    for search in (
        lambda: greedy_search(model, prompt, end=END, max_new_tokens=2),
        lambda: beam_search(model, prompt, beam=Beam(num_beams=2), end=END, max_new_tokens=2),
    ):
        with pytest.raises(RegardError, match="NaN"):
            search()


def test_an_encoder_model_is_refused() -> None:
    model = Bert(
        BertConfig(
            vocab_size=9,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=8,
        )
    )
    with pytest.raises(InputError, match="this bert model cannot generate text"):
        as_decoder(model)
    as_decoder(family("gpt"))
