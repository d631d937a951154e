"""Recurrent layers against the equations of the LSTM and the GRU, one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn.masks import Packed, Padded
from regard.nn.recurrent import CellType, Recurrent, StackedCell, reverse_sequences, sequence_lengths

Randomise = Callable[..., Any]


def lstm_step(w: Callable[[str], Tensor], x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gates i, f, o and cell candidate g: c' = f c + i g, h' = o tanh(c')."""
    h, c = state
    i, f, g, o = (w("weight_ih") @ x + w("bias_ih") + w("weight_hh") @ h + w("bias_hh")).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(w: Callable[[str], Tensor], x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """h' = (1 - z) n + z h, with n = tanh(W x + r (U h))."""
    (h,) = state
    x_r, x_z, x_n = (w("weight_ih") @ x + w("bias_ih")).chunk(3)
    h_r, h_z, h_n = (w("weight_hh") @ h + w("bias_hh")).chunk(3)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return ((1 - z) * torch.tanh(x_n + r * h_n) + z * h,)


STEPS: dict[CellType, Callable[..., tuple[Tensor, ...]]] = {"lstm": lstm_step, "gru": gru_step}


def reference_run(
    module: Recurrent, x: Tensor, cell: CellType, depth: int, bidirectional: bool
) -> tuple[Tensor, list[Any]]:
    """All outputs of one sequence (T, W) and the last state of every layer, computed in loops."""
    parameters = dict(module.layers.named_parameters())
    units, last = module.layers.hidden_size, []
    for layer in range(depth):
        sides = []
        for suffix in ("", "_reverse") if bidirectional else ("",):
            state = tuple(x.new_zeros(units) for _ in range(2 if cell == "lstm" else 1))
            outputs = []
            for row in reversed(x) if suffix else x:
                state = STEPS[cell](lambda name, end=f"_l{layer}{suffix}": parameters[name + end], row, state)
                outputs.append(state[0])
            sides.append((torch.stack(outputs[::-1] if suffix else outputs), state))
        x = torch.cat([outputs for outputs, _ in sides], dim=-1)
        last.append([torch.cat(parts) for parts in zip(*(state for _, state in sides), strict=True)])
    return x, last


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layout", ["full", "padded", "packed"])
def test_recurrent_layer_follows_the_equations(
    device: torch.device, randomised: Randomise, cell: CellType, depth: int, bidirectional: bool, layout: str
) -> None:
    module = randomised(Recurrent(3, 4, cell=cell, depth=depth, bidirectional=bidirectional)).to(device)
    sizes = [4, 4, 4] if layout == "full" else [2, 4, 1]
    texts = [torch.randn(size, 3, device=device) for size in sizes]
    if layout == "packed":
        whole, last = module(torch.cat(texts), Packed.from_lengths(sizes, device=device))
        states = whole.split(sizes)
    else:
        rows = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=8.0)
        whole, last = module(rows, Padded() if layout == "full" else Padded.from_lengths(sizes, device=device))
        assert whole.shape == (3, 4, 4)
        states = [row[:size] for row, size in zip(whole, sizes, strict=True)]
    assert len(last) == (2 if cell == "lstm" else 1) and all(part.shape == (depth, 3, 4) for part in last)
    for b, text in enumerate(texts):
        expected, expected_last = reference_run(module, text, cell, depth, bidirectional)
        torch.testing.assert_close(states[b], expected, atol=1e-5, rtol=1e-5)
        for part in range(len(last)):
            for layer in range(depth):
                torch.testing.assert_close(last[part][layer, b], expected_last[layer][part], atol=1e-5, rtol=1e-5)


def test_two_directions_share_the_units() -> None:
    with pytest.raises(ValueError, match="even number of units, got 5"):
        Recurrent(3, 5, bidirectional=True)


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("depth", [1, 2])
def test_stacked_cell_follows_the_equations(
    device: torch.device, randomised: Randomise, cell: CellType, depth: int
) -> None:
    module = randomised(StackedCell(3, 4, cell=cell, depth=depth)).to(device)
    x = torch.randn(2, 3, device=device)
    state = tuple(torch.randn(depth, 2, 4, device=device) for _ in range(2 if cell == "lstm" else 1))
    output, following = module(x, state)
    assert output.shape == (2, 4) and [part.shape for part in following] == [part.shape for part in state]
    for b in range(2):
        below = x[b]
        for layer in range(depth):
            weights = dict(module.cells[layer].named_parameters())
            new = STEPS[cell](weights.__getitem__, below, tuple(part[layer, b] for part in state))
            for got, expected in zip(following, new, strict=True):
                torch.testing.assert_close(got[layer, b], expected, atol=1e-5, rtol=1e-5)
            below = new[0]
        torch.testing.assert_close(output[b], below, atol=1e-5, rtol=1e-5)


def test_stepping_the_cell_equals_the_layer(device: torch.device, randomised: Randomise) -> None:
    layer, cell = randomised(Recurrent(3, 4, depth=2)).to(device), StackedCell(3, 4, depth=2).to(device)
    weights = dict(layer.layers.named_parameters())
    cell.load_state_dict({f"cells.{name[-1]}.{name[:-3]}": value for name, value in weights.items()})
    x = torch.randn(2, 5, 3, device=device)
    state, outputs = (torch.zeros(2, 2, 4, device=device),) * 2, []
    for t in range(5):
        output, state = cell(x[:, t], state)
        outputs.append(output)
    whole, last = layer(x, Padded())
    torch.testing.assert_close(torch.stack(outputs, dim=1), whole, atol=1e-5, rtol=1e-5)
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_dropout_between_layers_applies_in_training_only() -> None:
    module = Recurrent(3, 16, depth=2, dropout=0.5)
    x = torch.randn(1, 4, 3)
    assert torch.equal(module.eval()(x, Padded())[0], module(x, Padded())[0])
    assert not torch.equal(module.train()(x, Padded())[0], module(x, Padded())[0])


def test_sequences_are_reversed_within_their_length(device: torch.device) -> None:
    x = torch.arange(1, 9, device=device).view(2, 4, 1)
    assert reverse_sequences(x, Padded())[..., 0].tolist() == [[4, 3, 2, 1], [8, 7, 6, 5]]
    layout = Padded.from_lengths([2, 4], device=device)
    assert reverse_sequences(x, layout)[..., 0].tolist() == [[2, 1, 3, 4], [8, 7, 6, 5]]
    assert torch.equal(reverse_sequences(reverse_sequences(x, layout), layout), x)
    assert sequence_lengths(x, layout).tolist() == [2, 4] and sequence_lengths(x, Padded()).tolist() == [4, 4]
