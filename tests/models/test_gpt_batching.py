"""A GPT of realistic size gives the same logits for a text alone and in a batch, to 1e-5 of their norm, on any CPU.

The bits may differ: BLAS libraries choose kernels, and so the order of summation, by the number of rows.
"""

from __future__ import annotations

import pytest
import torch

import regard
from regard.known import DEFAULT_CAUSAL_LM
from regard.models import Gpt
from regard.nn.masks import Packed, Padded

LENGTHS = [1, 3, 17, 64, 5, 40, 9]
TOLERANCE = (
    1e-5  # relative to a row's norm; the measured maximum is 2.5e-6, with and without AVX2, with 1 and 2 threads
)


@pytest.fixture(scope="module")
def model() -> Gpt:
    found, _ = regard.load(DEFAULT_CAUSAL_LM)
    assert isinstance(found, Gpt)
    return found


@pytest.fixture(scope="module")
def texts(model: Gpt) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(5, model.config.vocab_size, (length,), generator=generator) for length in LENGTHS]


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


@torch.no_grad()
def test_logits_alone_and_in_a_batch(model: Gpt, texts: list[torch.Tensor]) -> None:
    alone = [model.logits(model(text[None]))[0] for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    padded = model.logits(model(ids, Padded.from_lengths(LENGTHS)))
    packed = model.logits(model(torch.cat(texts), Packed.from_lengths(LENGTHS))).split(LENGTHS)
    for row, expected in enumerate(alone):
        assert relative_error(padded[row, : LENGTHS[row]], expected) < TOLERANCE
        assert relative_error(packed[row], expected) < TOLERANCE


@torch.no_grad()
def test_the_next_token_alone_and_in_a_batch(model: Gpt, texts: list[torch.Tensor]) -> None:
    """With a cache, as in generation: first the prompts, then one more token."""
    following = torch.tensor([text[0] for text in texts])
    first, state = model.start(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), Padded.from_lengths(LENGTHS))
    second, _ = model.step(following, state)
    for row, text in enumerate(texts):
        logits, state = model.start(text[None])
        assert relative_error(first[row], logits[0]) < TOLERANCE
        logits, _ = model.step(following[row : row + 1], state)
        assert relative_error(second[row], logits[0]) < TOLERANCE
