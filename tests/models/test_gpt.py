"""GPT: causality, tied logits, and cached decoding equal to a full forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.models import Gpt, GptConfig
from regard.nn.masks import Padded

CONFIG = GptConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
    dropout=0.0,
    attention_dropout=0.0,
)
Make = Callable[..., Any]


@pytest.fixture
def model(device: torch.device, randomised: Make) -> Any:
    return randomised(Gpt(CONFIG)).to(device).eval()


def test_output_does_not_depend_on_the_batch(
    device: torch.device, model: Any, check_batch_invariance: Make, texts: Make
) -> None:
    check_batch_invariance(lambda side: model(*side), texts(device))


def test_later_tokens_do_not_change_earlier_ones(device: torch.device, model: Any) -> None:
    ids = torch.randint(1, 10, (2, 6), device=device)
    other = ids.clone()
    other[:, 4:] += 10
    before, after = model(ids), model(other)
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-6, rtol=0)
    assert (after[:, 4:] - before[:, 4:]).abs().amax(-1).min() > 1e-3


def test_logits_are_products_with_the_embeddings(device: torch.device, model: Any) -> None:
    hidden = torch.randn(2, 3, 8, device=device)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embedding.tokens.weight.T, atol=1e-5, rtol=1e-5)


def test_last_state_is_normalized(device: torch.device, model: Any) -> None:
    ids = torch.randint(20, (2, 5), device=device)
    states = list(model.states(ids))
    last = model.decoder.layers[-1](states[-2], Padded())
    torch.testing.assert_close(states[-1], model.decoder.norm(last), atol=1e-6, rtol=1e-6)
    assert len(states) == 3 and torch.equal(model(ids), states[-1])


@pytest.mark.parametrize("prompt", [1, 3])
def test_cached_decoding_equals_uncached(device: torch.device, model: Any, prompt: int) -> None:
    ids = torch.randint(20, (3, 8), device=device)
    whole = model.logits(model(ids))
    logits, state = model.start(ids[:, :prompt])
    for t in range(prompt, 8):
        torch.testing.assert_close(logits, whole[:, t - 1], atol=1e-5, rtol=1e-4)
        logits, state = model.step(ids[:, t], state)
    torch.testing.assert_close(logits, whole[:, -1], atol=1e-5, rtol=1e-4)
    assert state.cache.length == 8 and state.lengths.tolist() == [8] * 3


def test_ragged_prompts_continue_as_if_alone(device: torch.device, model: Any) -> None:
    """Prompts of 4, 1 and 6 tokens, right-padded with junk: new tokens directly follow each prompt."""
    lengths, more = [4, 1, 6], torch.randint(20, (3, 4), device=device)
    prompts = torch.randint(20, (3, 6), device=device)
    logits, state = model.start(prompts, Padded.from_lengths(lengths, device=device))
    rows = [logits]
    for t in range(4):
        logits, state = model.step(more[:, t], state)
        rows.append(logits)
    assert state.lengths.tolist() == [8, 5, 10]
    for b, length in enumerate(lengths):
        whole = model.logits(model(torch.cat([prompts[b, :length], more[b]])[None]))[0]
        torch.testing.assert_close(torch.stack(rows)[:, b], whole[length - 1 :], atol=1e-5, rtol=1e-4)


def test_reorder_moves_rows(device: torch.device, model: Any) -> None:
    lengths, index = [4, 2, 3], torch.tensor([1, 1, 0], device=device)
    prompts, following = torch.randint(20, (3, 4), device=device), torch.tensor([5, 6, 7], device=device)
    _, state = model.start(prompts, Padded.from_lengths(lengths, device=device))
    state.reorder(index)
    logits, _ = model.step(following, state)
    for row, origin in enumerate(index.tolist()):
        ids = torch.cat([prompts[origin, : lengths[origin]], following[row : row + 1]])[None]
        torch.testing.assert_close(logits[row], model.logits(model(ids))[0, -1], atol=1e-5, rtol=1e-4)


def test_concurrent_decodings_are_independent(device: torch.device, model: Any) -> None:
    one, other = torch.randint(20, (1, 6), device=device), torch.randint(20, (1, 6), device=device)
    _, first = model.start(one[:, :3])
    _, second = model.start(other[:, :4])
    for t in (4, 5):
        got, first = model.step(one[:, t - 1], first)
        model.step(other[:, t], second)
    torch.testing.assert_close(got, model.logits(model(one[:, :5]))[:, -1], atol=1e-5, rtol=1e-4)


def test_initial_residual_weights_decrease_with_depth() -> None:
    torch.manual_seed(0)
    config = GptConfig(
        vocab_size=20,
        hidden_size=64,
        num_hidden_layers=8,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=16,
    )
    model = Gpt(config)
    assert model.embedding.tokens.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for block in model.decoder.layers:
        assert block.attention.output.weight.std().item() == pytest.approx(0.02 / 4, rel=0.1)


def test_gradients_reach_all_parameters(device: torch.device, model: Any) -> None:
    model.logits(model(torch.randint(20, (2, 16), device=device))).pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_left_padded_prompts_are_rejected() -> None:
    model = Gpt(
        GptConfig(
            vocab_size=20,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
        )
    )
    keep = torch.tensor([[False, True, True], [True, True, True]])
    with pytest.raises(ValueError, match="padded on the right"):
        model.start(torch.ones(2, 3, dtype=torch.long), Padded(keep))
