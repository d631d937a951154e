"""Recurrent layers over padded or packed batches: LSTM or GRU, one direction or two, and a cell for one step.

The inputs are vectors of any kind, such as word vectors or image frames.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import check_choice
from regard.nn.layer import Layer
from regard.nn.masks import Layout, Padded, from_padded, to_padded

CellType = Literal["lstm", "gru"]
RecurrentState = tuple[Tensor, ...]  # (h, c) for an LSTM, (h,) for a GRU; each (layers, B, units)


def sequence_lengths(x: Tensor, layout: Padded) -> Tensor:
    """Return the length of each sequence of a right-padded batch, on the CPU."""
    return torch.full((len(x),), x.shape[1]) if layout.mask is None else layout.mask.sum(1).cpu()


def reverse_sequences(x: Tensor, layout: Padded) -> Tensor:
    """Reverse each sequence; the padding stays on the right."""
    if layout.mask is None:
        return x.flip(1)
    positions = torch.arange(x.shape[1], device=x.device)
    size = layout.mask.sum(1, keepdim=True)
    index = torch.where(positions < size, size - 1 - positions, positions)
    return x.gather(1, index[..., None].expand_as(x))


class RecurrentLayer(Layer):
    """What recurrent layers have in common: library kernels that compute in float32."""

    is_convertible = False


class Lstm(RecurrentLayer, nn.LSTM):
    """One layer of an LSTM in one direction, for padded sequences (B, T, W)."""

    def __init__(self, width: int, units: int, *, projection: int = 0) -> None:
        super().__init__(width, units, proj_size=projection, batch_first=True)
        self.width = width

    @property
    def shape(self) -> str:
        return f"width {self.width}, LSTM of {self.hidden_size} units"

    def apply_alone(self, x: Tensor, layout: Layout) -> Tensor:
        rows, _ = to_padded(x, layout)
        return from_padded(self(rows)[0], layout)


class Recurrent(RecurrentLayer):
    """LSTM or GRU over whole sequences. With two directions each has half the units, so the output is `units` wide."""

    def __init__(
        self,
        width: int,
        units: int,
        *,
        cell: CellType = "lstm",
        depth: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if bidirectional and units % 2:
            raise ValueError(f"a bidirectional layer needs an even number of units, got {units}")
        check_choice("cell", cell, get_args(CellType))
        self.width = width
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.layers = kind(
            width,
            units // 2 if bidirectional else units,
            num_layers=depth,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if depth > 1 else 0.0,
        )

    def forward(self, x: Tensor, layout: Layout) -> tuple[Tensor, RecurrentState]:
        """Return all states (B, T, units) in the layout of the input, and the last state of every layer."""
        rows, shape = to_padded(x, layout)
        if shape.mask is None:
            states, last = self.layers(rows)
        else:
            sequence = pack_padded_sequence(rows, sequence_lengths(rows, shape), batch_first=True, enforce_sorted=False)
            states, last = self.layers(sequence)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=rows.shape[1])
        last = last if isinstance(last, tuple) else (last,)
        if self.layers.bidirectional:  # (2 * layers, B, half) -> (layers, B, units)
            last = tuple(torch.cat([s[0::2], s[1::2]], dim=-1) for s in last)
        return from_padded(states, layout), last

    @property
    def shape(self) -> str:
        return f"width {self.width}, {self.layers.num_layers} {self.layers.mode} of {self.layers.hidden_size} units"

    def apply_alone(self, x: Tensor, layout: Layout) -> Tensor:
        return self(x, layout)[0]  # type: ignore[no-any-return]


class StackedCell(RecurrentLayer):
    """A recurrent decoder with any number of layers: one step, or all steps whose inputs are known."""

    def __init__(
        self, width: int, units: int, *, cell: CellType = "lstm", depth: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width, self.units = width, units
        kind = nn.LSTMCell if cell == "lstm" else nn.GRUCell
        self.cells = nn.ModuleList(kind(width if i == 0 else units, units) for i in range(depth))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Map x (B, width) and the state to the output of the top layer (B, units) and the next state.

        The steps x (B, T, width) give outputs (B, T, units) and the state after the last one, in one kernel.
        """
        if x.ndim == 3:
            return self._all_steps(x, state)
        states = []
        for number, cell in enumerate(self.cells):
            x = self.dropout(x) if number else x
            new = cell(x, tuple(s[number] for s in state) if len(state) > 1 else state[0][number])
            new = new if isinstance(new, tuple) else (new,)
            states.append(new)
            x = new[0]
        return x, tuple(torch.stack(parts) for parts in zip(*states, strict=True))

    @property
    def shape(self) -> str:
        return f"width {self.width}, {len(self.cells)} {type(self.cells[0]).__name__} of {self.units} units"

    def apply_alone(self, x: Tensor, layout: Layout) -> Tensor:
        rows, _ = to_padded(x, layout)
        zeros = rows.new_zeros(len(self.cells), len(rows), self.units)
        outputs, _ = self(rows, (zeros, zeros) if isinstance(self.cells[0], nn.LSTMCell) else (zeros,))
        return from_padded(outputs, layout)

    def _all_steps(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        weights = [
            weight for cell in self.cells for weight in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        ]
        shape = (True, len(self.cells), self.dropout.p if len(self.cells) > 1 else 0.0, self.training, False, True)
        if len(state) > 1:
            outputs, *last = torch.lstm(x, state, weights, *shape)  # type: ignore[arg-type]
        else:
            outputs, *last = torch.gru(x, state[0], weights, *shape)  # type: ignore[arg-type]
        return outputs, tuple(last)
