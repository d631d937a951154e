"""ELMo against a reference loop: projected bidirectional LSTMs, residuals, scalar mix, and causality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.models import Elmo, ElmoConfig
from regard.nn.masks import Padded
from regard.nn.stack import ScalarMix

CONFIG = ElmoConfig(vocab_size=20, num_characters=0, hidden_size=4, cell_size=6, num_hidden_layers=3, dropout=0.0)
CONFIGS = {
    "words": CONFIG,
    "words, no projection": replace(CONFIG, cell_size=4),
    "characters": replace(CONFIG, num_characters=15),
}
Make = Callable[..., Any]
# Ignore the warning that LSTM projections are slow on a CPU.
pytestmark = pytest.mark.filterwarnings("error:LSTM with projections:UserWarning")


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest, device: torch.device, randomized: Make) -> Any:
    return randomized(Elmo(CONFIGS[request.param])).to(device).eval()


def words(model: Any, shape: tuple[int, ...], device: torch.device) -> Tensor:
    if model.config.num_characters:
        return torch.randint(1, 15, (*shape, 6), device=device)
    return torch.randint(20, shape, device=device)


def reference_lstm(layer: nn.LSTM, rows: list[Tensor]) -> list[Tensor]:
    """One sequence, one direction, one layer; the output is projected if the cell is wider."""
    w = dict(layer.named_parameters())
    h = rows[0].new_zeros(layer.proj_size or layer.hidden_size)
    c, outputs = rows[0].new_zeros(layer.hidden_size), []
    for x in rows:
        gates = w["weight_ih_l0"] @ x + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]
        i, f, g, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        if layer.proj_size:
            h = w["weight_hr_l0"] @ h
        outputs.append(h)
    return outputs


def reference_states(model: Any, text: Tensor) -> list[Tensor]:
    x = list(model.embedding(text[None])[0])
    ahead, back = x, x[::-1]
    states = [torch.stack([torch.cat([v, v]) for v in x])]
    for number, (forwards, backwards) in enumerate(zip(model.encoder.forwards, model.encoder.backwards, strict=True)):
        new_ahead, new_back = reference_lstm(forwards, ahead), reference_lstm(backwards, back)
        if number:
            new_ahead = [a + b for a, b in zip(new_ahead, ahead, strict=True)]
            new_back = [a + b for a, b in zip(new_back, back, strict=True)]
        ahead, back = new_ahead, new_back
        states.append(torch.stack([torch.cat([a, b]) for a, b in zip(ahead, back[::-1], strict=True)]))
    return states


def test_every_layer_equals_the_reference(device: torch.device, model: Any) -> None:
    lengths = [5, 2, 1]
    batch = words(model, (3, 5), device)
    states = list(model.states(batch, Padded.from_lengths(lengths, device=device)))
    assert len(states) == 4 and all(state.shape == (3, 5, 8) for state in states)
    assert torch.equal(states[-1], model(batch, Padded.from_lengths(lengths, device=device)))
    for b, length in enumerate(lengths):
        for got, expected in zip(states, reference_states(model, batch[b, :length]), strict=True):
            torch.testing.assert_close(got[b, :length], expected, atol=1e-5, rtol=1e-4)


def test_scalar_mix_equals_the_reference(device: torch.device, model: Any) -> None:
    mix = ScalarMix(4).to(device)
    with torch.no_grad():
        mix.s.copy_(torch.tensor([0.5, -0.5, 1.0, 0.0]))
        mix.gamma.fill_(0.7)
    text = words(model, (5,), device)
    weights = torch.tensor([0.5, -0.5, 1.0, 0.0]).exp()
    expected = torch.zeros(5, 8, device=device)
    for weight, state in zip((weights / weights.sum()).tolist(), reference_states(model, text), strict=True):
        expected = expected + 0.7 * weight * state
    torch.testing.assert_close(mix(list(model.states(text[None])))[0], expected, atol=1e-5, rtol=1e-4)


def test_output_does_not_depend_on_the_batch(
    device: torch.device, model: Any, check_batch_invariance: Make, texts: Make
) -> None:
    characters = 6 if model.config.num_characters else 0
    pool = texts(device, vocabulary=15, characters=characters)
    check_batch_invariance(lambda side: model(*side), pool)


def test_padding_has_no_effect(device: torch.device, randomized: Make) -> None:
    """Neither word padding after a text nor character padding after a word."""
    model = randomized(Elmo(CONFIGS["characters"])).to(device).eval()
    batch = words(model, (2, 4), device)
    batch[0, 1, 3:] = 0
    expected = model(batch)
    wider = nn.functional.pad(batch, (0, 5))
    torch.testing.assert_close(model(wider), expected, atol=1e-6, rtol=1e-5)
    longer = nn.functional.pad(batch, (0, 0, 0, 3), value=7)
    layout = Padded.from_lengths([4, 4, 7], device=device)
    assert layout.mask is not None
    torch.testing.assert_close(model(longer, Padded(layout.mask[:2]))[:, :4], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_language_models_do_not_see_the_word_they_predict(
    device: torch.device, model: Any, place: int, padded: bool
) -> None:
    """Changing word p affects neither forward scores up to p nor backward scores from p on, in any layer."""
    model.double()
    batch = words(model, (2, 5), device)
    other = batch.clone()
    other[:, place] = (other[:, place] + 3) % 14 + 1
    layout = Padded.from_lengths([5, 5, 6], device=device) if padded else Padded()
    if padded:
        assert layout.mask is not None
        layout = Padded(layout.mask[:2])
        batch, other = (torch.cat([x, x[:, :1]], dim=1) for x in (batch, other))
    with torch.no_grad():
        pairs = zip(model.states(batch, layout), model.states(other, layout), strict=True)
        for number, (before, after) in enumerate(pairs):
            changed = (after - before)[:, :5].abs()
            ahead, back = changed[..., :4].amax((0, 2)), changed[..., 4:].amax((0, 2))
            if number:
                assert ahead[:place].sum() == 0 and back[place + 1 :].sum() == 0
                assert ahead[place:].min() > 0 and back[: place + 1].min() > 0
        ahead_scores, back_scores = model.logits(before[:, :5])
        changed_ahead, changed_back = model.logits(after[:, :5])
    torch.testing.assert_close(changed_ahead[:, :place], ahead_scores[:, :place], atol=1e-12, rtol=0)
    torch.testing.assert_close(changed_back[:, place + 1 :], back_scores[:, place + 1 :], atol=1e-12, rtol=0)


def test_one_output_layer_serves_both_directions(device: torch.device, model: Any) -> None:
    hidden = torch.randn(2, 3, 8, device=device)
    ahead, back = model.logits(hidden)
    weight, bias = model.output.weight, model.output.bias
    torch.testing.assert_close(ahead, hidden[..., :4] @ weight.T + bias, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(back, hidden[..., 4:] @ weight.T + bias, atol=1e-5, rtol=1e-5)
    assert ahead.shape == back.shape == (2, 3, 20)


def test_without_the_output_layer_there_are_no_scores() -> None:
    with pytest.raises(TypeError, match="without its output layer"):
        Elmo(CONFIG, output_heads=()).logits(torch.randn(1, 2, 8))


def test_cell_narrower_than_the_output_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"cell_size \(3\) must be at least hidden_size \(4\)"):
        Elmo(replace(CONFIG, cell_size=3))


def test_gradients_reach_all_parameters(device: torch.device, model: Any) -> None:
    model.train()  # cuDNN has no backward in evaluation mode
    mix = ScalarMix(4).to(device)
    vectors = mix(list(model.states(words(model, (4, 6), device))))
    ahead, back = model.logits(vectors)
    (ahead.pow(2).sum() + back.pow(2).sum()).backward()
    for module in (model, mix):
        missing = [name for name, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert not missing
