"""Sampling: independent of the batch, with the right frequencies, and one token at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch

from regard.errors import InputError, RegardError
from regard.inference.generation.beam_search import greedy_search
from regard.inference.generation.sampling import Sampling, choose_tokens, sample, uniform_number
from regard.nn.masks import Padded
from tests.inference.generation.models import FAMILIES, VOCABULARY, Chain, family

END = 0
WARM = Sampling(temperature=1.3, top_p=0.95, repetition_penalty=1.1)


def texts(steps: Iterable[list[int | None]]) -> list[list[int]]:
    """The tokens of each row; none may follow a None."""
    rows = [list(row) for row in zip(*steps, strict=True)]
    found = [[token for token in row if token is not None] for row in rows]
    assert [row[: len(tokens_found)] for row, tokens_found in zip(rows, found, strict=True)] == found
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_texts_for_any_batch_size_and_order(name: str, device: torch.device) -> None:
    model = family(name).to(device)
    lengths = [5, 2, 4, 3, 5, 1, 2, 4]
    ids = torch.randint(1, VOCABULARY, (8, 5), device=device)

    def sample_rows(rows: list[int]) -> dict[int, list[int]]:
        layout = Padded.from_lengths([lengths[row] for row in rows], device=device)
        assert layout.mask is not None
        wide = layout.mask.shape[1]
        row_prompts = [ids[row, : lengths[row]].tolist() for row in rows]
        steps = sample(
            model,
            ids[rows, :wide],
            layout,
            sampling=WARM,
            end=END,
            max_new_tokens=9,
            seed=11,
            rows=rows,
            prompt_ids=row_prompts,
        )
        return dict(zip(rows, texts(steps), strict=True))

    eight = sample_rows(list(range(8)))
    single = {row: text for row in range(8) for text in sample_rows([row]).values()}
    five_and_three = sample_rows([6, 1, 3, 0, 7]) | sample_rows([5, 2, 4])
    assert eight == single == five_and_three
    assert len({tuple(text) for text in eight.values()}) > 4


def test_seeds_and_rows_differ() -> None:
    model, prompts = Chain(9), torch.tensor([[1, 2]] * 6)

    def sample_texts(seed: int) -> list[list[int]]:
        return texts(sample(model, prompts, sampling=Sampling(), end=None, max_new_tokens=12, seed=seed))

    assert sample_texts(1) == sample_texts(1)
    assert sample_texts(1) != sample_texts(2)
    assert len({tuple(text) for text in sample_texts(1)}) == 6


def test_token_frequencies_match_probabilities() -> None:
    """4,000 first tokens against the filtered distribution, within four standard deviations."""
    model, count = Chain(8, seed=3), 4000
    sampling = Sampling(temperature=1.5, top_k=6, min_p=0.02)
    expected = sampling.filtered(model.table[1, 2][None]).softmax(-1)[0].tolist()
    steps = sample(model, torch.tensor([[1, 2]] * count), sampling=sampling, end=None, max_new_tokens=1, seed=5)
    found = torch.bincount(torch.tensor(texts(steps)).flatten(), minlength=8).tolist()
    assert expected.count(0.0) >= 2
    for number, probability in zip(found, expected, strict=True):
        assert abs(number - count * probability) <= 4 * math.sqrt(count * probability * (1 - probability))


def test_uniform_numbers_are_evenly_distributed_and_depend_on_their_index() -> None:
    uniforms = torch.tensor([[uniform_number(0, row, step) for step in range(50)] for row in range(200)])
    assert float(uniforms.min()) >= 0 and float(uniforms.max()) < 1
    assert len(uniforms.unique()) > 9_990
    tenths = torch.histc(uniforms, bins=10, min=0, max=1)
    assert float((tenths - 1000).abs().max()) < 120  # four standard deviations
    correlation = torch.corrcoef(torch.stack([uniforms[:, :-1].flatten(), uniforms[:, 1:].flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.04
    assert uniform_number(3, 4, 5) == uniform_number(3, 4, 5)
    assert (
        len({uniform_number(1, 11, 1), uniform_number(11, 1, 1), uniform_number(1, 1, 11), uniform_number(111, 1, 1)})
        == 4
    )


def test_choosing_tokens_by_hand() -> None:
    logits = torch.tensor([[0.25, 0.0, 0.5, 0.25]], dtype=torch.float64).log()
    for uniform, token in ((0.0, 0), (0.2499, 0), (0.2501, 2), (0.7499, 2), (0.7501, 3), (1 - 2**-53, 3)):
        assert choose_tokens(logits, [uniform]).tolist() == [token]


def test_excluded_tokens_are_never_chosen() -> None:
    logits = torch.full((1, 6), -math.inf, dtype=torch.float64)
    logits[0, 3] = 1.0
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert choose_tokens(logits, [uniform]).tolist() == [3]


@pytest.mark.parametrize("cold", [None, Sampling(temperature=0.0), Sampling(top_k=1)])
def test_zero_temperature_is_greedy(cold: Sampling | None) -> None:
    model, ids = family("gpt"), torch.randint(1, VOCABULARY, (3, 5))
    expected = greedy_search(model, ids, end=END, max_new_tokens=8)
    found = texts(sample(model, ids, sampling=cold, end=END, max_new_tokens=8))
    assert [tuple(token for token in text if token != END) for text in found] == [one.ids for one in expected]


def test_steps_are_computed_lazily() -> None:
    model = Chain(9)
    steps = sample(model, torch.tensor([[1, 2]]), sampling=None, end=None, max_new_tokens=50)
    assert model.rows == []
    next(steps)
    assert model.rows == [1]
    next(steps)
    assert model.rows == [1, 1]
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_finished_rows_are_not_computed() -> None:
    model = Chain(5, seed=0)
    model.table[:] = torch.tensor([-20.0, 1.0, 2.0, 0.0, 0.0])
    model.table[3, 3] = torch.tensor([20.0, 0.0, 0.0, 0.0, 0.0])
    steps = list(sample(model, torch.tensor([[3, 3], [1, 2]]), sampling=None, end=END, max_new_tokens=3))
    assert steps == [[END, 2], [None, 2], [None, 2]]
    assert model.rows == [2, 1, 1]


def test_the_caller_can_end_a_row() -> None:
    model, over = Chain(9), set[int]()
    steps = sample(model, torch.tensor([[1, 2], [3, 4]]), sampling=None, end=None, max_new_tokens=9, finished=over)
    assert None not in next(steps)
    over.add(0)
    assert next(steps)[0] is None
    over.add(1)
    assert list(steps) == []


def test_repetition_penalty_counts_prompt_and_generated_tokens() -> None:
    model = Chain(6, seed=2)
    model.table.clamp_(min=0.1)  # all above 0: an enormous penalty makes them equal, and ties are ordered by id
    model.table += torch.tensor([0.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    sampling = Sampling(temperature=0.0, repetition_penalty=1e9)
    steps = sample(model, torch.tensor([[1, 2]]), sampling=sampling, end=None, max_new_tokens=4, prompt_ids=[[1, 2]])
    (text,) = texts(steps)
    assert set(text) == {0, 3, 4, 5}
    (unheard,) = texts(sample(model, torch.tensor([[1, 2]]), sampling=sampling, end=None, max_new_tokens=6))
    assert sorted(unheard) == [0, 1, 2, 3, 4, 5]


def test_invalid_input_is_refused() -> None:
    model = Chain(4)
    with pytest.raises(InputError, match="max_new_tokens is 0"):
        next(sample(model, torch.tensor([[1, 2]]), sampling=None, end=END, max_new_tokens=0))
    model.table[1, 2, 3] = math.nan
    for sampling in (None, Sampling(), Sampling(top_k=2), Sampling(top_p=0.5)):
        with pytest.raises(RegardError, match="NaN"):
            next(sample(model, torch.tensor([[1, 2]]), sampling=sampling, end=END, max_new_tokens=2))


def test_training_mode_is_restored() -> None:
    model = family("gpt").train()
    steps = sample(model, torch.tensor([[1, 2]]), sampling=None, end=None, max_new_tokens=9)
    next(steps)
    assert not model.training
    steps.close()  # type: ignore[attr-defined]
    assert all(part.training for part in model.modules())
