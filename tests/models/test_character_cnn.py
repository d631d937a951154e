"""Character CNN: equal to loops over windows; padding after a word has no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.models.elmo import CharacterCNN, Highway

Randomise = Callable[..., Any]
FILTERS = ((1, 3), (2, 4), (3, 5))


def make_cnn(randomised: Randomise, device: torch.device) -> Any:
    module = randomised(CharacterCNN(30, 6, embedding=4, filters=FILTERS, highways=2))
    with torch.no_grad():
        module.embedding.weight[0] = 0.0  # padding contributes nothing
    return module.to(device)


def reference_output(module: Any, word: list[int]) -> Tensor:
    """The maximum of each filter over the windows that begin at a character, with zeros after the word."""
    table = module.embedding.weight
    letters = [table[c] for c in word] + [torch.zeros_like(table[0])] * 3
    best = []
    for (size, count), convolution in zip(FILTERS, module.convolutions, strict=True):
        for number in range(count):
            answers = []
            for begin in range(len(word)):
                total = convolution.bias[number]
                for offset in range(size):
                    total = total + convolution.weight[number, :, offset] @ letters[begin + offset]
                answers.append(torch.relu(total))
            best.append(torch.stack(answers).max())
    x = torch.stack(best)
    for highway in module.highways:
        gate = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
        x = gate * torch.relu(highway.change.weight @ x + highway.change.bias) + (1 - gate) * x
    return module.project.weight @ x + module.project.bias


@pytest.mark.parametrize("word", [[5], [5, 9], [1, 2, 3, 4, 29], [7, 7, 7, 7]])
def test_output_equals_the_reference(device: torch.device, randomised: Randomise, word: list[int]) -> None:
    module = make_cnn(randomised, device)
    got = module(torch.tensor([[word]], device=device))
    torch.testing.assert_close(got[0, 0], reference_output(module, word), atol=1e-5, rtol=1e-5)


def test_padding_after_a_word_has_no_effect(device: torch.device, randomised: Randomise) -> None:
    module = make_cnn(randomised, device)
    words = torch.randint(1, 30, (2, 3, 5), device=device)
    words[0, 1, 2:] = 0
    more = torch.nn.functional.pad(words, (0, 4))
    torch.testing.assert_close(module(more), module(words), atol=1e-6, rtol=1e-6)
    short = module(words[:1, 1:2, :2])
    torch.testing.assert_close(short[0, 0], module(words)[0, 1], atol=1e-6, rtol=1e-6)


def test_packed_words_equal_padded_words(device: torch.device, randomised: Randomise) -> None:
    module = make_cnn(randomised, device)
    words = torch.randint(1, 30, (2, 3, 5), device=device)
    assert module(words).shape == (2, 3, 6)
    torch.testing.assert_close(module(words.flatten(0, 1)), module(words).flatten(0, 1), atol=1e-6, rtol=1e-6)


def test_every_character_and_its_order_matter(device: torch.device, randomised: Randomise) -> None:
    module = make_cnn(randomised, device)
    words = torch.tensor([[1, 2, 3], [3, 2, 1], [1, 2, 4]], device=device)
    one, turned, other = module(words)
    assert (one - turned).abs().max() > 1e-3 and (one - other).abs().max() > 1e-3


def test_gradients_reach_all_parameters_except_padding(device: torch.device, randomised: Randomise) -> None:
    module = make_cnn(randomised, device)
    ids = torch.randint(1, 30, (8, 6), device=device)
    ids[:, 4:] = 0
    module(ids).pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
    assert module.embedding.weight.grad[0].abs().sum() == 0


def test_highway_initially_carries_its_input() -> None:
    highway, x = Highway(8), torch.randn(3, 8)
    assert torch.equal(highway.gate.bias, torch.full((8,), -2.0))
    gate = torch.sigmoid(highway.gate(x))
    torch.testing.assert_close(highway(x), gate * torch.relu(highway.change(x)) + (1 - gate) * x)
    torch.nn.init.constant_(highway.gate.bias, -100.0)
    torch.testing.assert_close(highway(x), x)
