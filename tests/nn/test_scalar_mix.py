"""ELMo's weighted sum of layers against a reference loop."""

from __future__ import annotations

import math

import pytest
import torch

from regard.nn.stack import ScalarMix


@pytest.mark.parametrize("shape", [(2, 3, 4), (7, 4)], ids=["padded", "packed"])
def test_scalar_mix_is_gamma_times_the_weighted_sum(device: torch.device, shape: tuple[int, ...]) -> None:
    mix = ScalarMix(3).to(device)
    with torch.no_grad():
        mix.s.copy_(torch.tensor([0.3, -1.2, 2.0]))
        mix.gamma.fill_(1.7)
    states = [torch.randn(shape, device=device) for _ in range(3)]
    raised = [math.exp(s) for s in (0.3, -1.2, 2.0)]
    expected = torch.zeros(shape, device=device)
    for weight, state in zip(raised, states, strict=True):
        expected += 1.7 * weight / sum(raised) * state
    torch.testing.assert_close(mix(states), expected, atol=1e-5, rtol=1e-5)


def test_a_new_mix_is_the_mean() -> None:
    states = [torch.randn(2, 4) for _ in range(4)]
    torch.testing.assert_close(ScalarMix(4)(states), torch.stack(states).mean(0))


def test_weights_and_scale_are_learned() -> None:
    """One weight per layer and one scale are sufficient to learn 3 * (the second layer)."""
    mix, states = ScalarMix(3), [torch.randn(50) for _ in range(3)]
    for _ in range(300):
        loss = (mix(states) - 3 * states[1]).pow(2).mean()
        slopes = torch.autograd.grad(loss, list(mix.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(mix.parameters(), slopes, strict=True):
                parameter -= 0.2 * slope
    assert loss.item() < 0.05
    assert mix.s.argmax() == 1 and mix.gamma.item() == pytest.approx(3, abs=0.5)


def test_wrong_number_of_layers_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected 3 layers, got 2"):
        ScalarMix(3)([torch.randn(2), torch.randn(2)])
