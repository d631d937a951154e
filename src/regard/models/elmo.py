"""ELMo: two language models, one reading forwards and one backwards; a word's vector is a mix of all their layers."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.nn import CharacterCNN, Layout, recording
from regard.nn.embedding import look_up
from regard.nn.masks import Padded, from_padded, to_padded
from regard.nn.recurrent import reversed_in_place

__all__ = ["BiLM", "Elmo", "ElmoConfig"]


@dataclass(frozen=True)
class ElmoConfig:
    """`width` is each direction's, a word's vector has twice that. Words are characters, or ids where that is 0."""

    family: str = "elmo"
    vocabulary: int = 30000
    characters: int = 262
    width: int = 512
    cell: int = 4096  # memory cells of each LSTM, projected down to the width
    depth: int = 2
    dropout: float = 0.1

    @property
    def vector_width(self) -> int:
        """Of a word's vector: both directions."""
        return 2 * self.width


class BiLM(nn.Module):
    """Stacked LSTMs in both directions that never see each other, so each can be trained to predict the next word.

    From the second layer on, a layer's input is added to its output.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()

        def direction() -> nn.ModuleList:
            size = config.width if config.cell > config.width else 0
            return nn.ModuleList(
                nn.LSTM(config.width, config.cell, proj_size=size, batch_first=True) for _ in range(config.depth)
            )

        if config.cell < config.width:
            raise ValueError(f"the cell ({config.cell}) must be at least as wide as the output ({config.width})")
        self.forwards, self.backwards = direction(), direction()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Padded) -> Iterator[Tensor]:
        """Vectors (B, T, W) to the states (B, T, 2W) of each layer, the input itself first."""
        ahead, back = x, reversed_in_place(x, layout)
        yield torch.cat([x, x], dim=-1)
        for number, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            new_ahead, new_back = _read(forwards, self.dropout(ahead)), _read(backwards, self.dropout(back))
            ahead = new_ahead + ahead if number else new_ahead
            back = new_back + back if number else new_back
            yield torch.cat([ahead, reversed_in_place(back, layout)], dim=-1)


def _read(layer: nn.Module, x: Tensor) -> Tensor:
    with warnings.catch_warnings():  # of a CPU, which reads projected LSTMs in a slower way
        warnings.filterwarnings("ignore", message="LSTM with projections")
        states: Tensor = layer(x)[0]
    return states


class Elmo(nn.Module):
    """`model(words, layout)` gives the top layer (B, T, 2W), `model.states` all layers; `ScalarMix` makes one of them.

    `words` are character ids (B, T, C), or word ids (B, T), or vectors (B, T, W); packed ones without B.
    """

    def __init__(self, config: ElmoConfig, *, heads: Collection[str] = ("output",)) -> None:
        super().__init__()
        self.config = config
        self.embedding = (
            CharacterCNN(config.characters, config.width)
            if config.characters
            else nn.Embedding(config.vocabulary, config.width)
        )
        self.encoder = BiLM(config)
        self.output = nn.Linear(config.width, config.vocabulary) if "output" in heads else None

    def _vectors(self, words: Tensor) -> Tensor:
        if isinstance(self.embedding, nn.Embedding):
            return look_up(self.embedding, words)
        found: Tensor = self.embedding(words)
        return found

    def states(self, words: Tensor, layout: Layout | None = None) -> Iterator[Tensor]:
        layout = layout or Padded()
        x, shape = to_padded(words if words.is_floating_point() else self._vectors(words), layout)
        for number, state in enumerate(self.encoder(x, shape)):
            result = from_padded(state, layout)
            recording.hidden(self.encoder, number, result, layout)
            yield result

    def forward(self, words: Tensor, layout: Layout | None = None) -> Tensor:
        *_, last = self.states(words, layout)
        return last

    def logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the word after each place, and of the word before it, (..., V) both, by one output layer."""
        if self.output is None:
            raise TypeError("this ELMo was loaded without its output layer")
        ahead, back = hidden.chunk(2, dim=-1)
        return self.output(ahead), self.output(back)
