"""ELMo: a forward and a backward language model; a word vector is a weighted sum of all their layers."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.family import Family, PretrainingRecipe
from regard.nn import recording
from regard.nn.embedding import lookup
from regard.nn.masks import Layout, Padded, from_padded, to_padded
from regard.nn.recurrent import Lstm, reverse_sequences


@dataclass(frozen=True)
class ElmoConfig:
    """`hidden_size` is the width of each direction. Words are characters, or ids if `num_characters` is 0."""

    family: str = "elmo"
    vocab_size: int = 30000
    num_characters: int = 262
    hidden_size: int = 512
    cell_size: int = 4096  # of each LSTM, projected down to `hidden_size`
    num_hidden_layers: int = 2
    dropout: float = 0.1

    @property
    def output_size(self) -> int:
        """The width of a word vector: both directions."""
        return 2 * self.hidden_size


class Highway(nn.Module):
    """A highway layer: g * relu(W x) + (1 - g) * x with a learned gate g."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)  # start close to the identity

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.change(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Maps the character ids (..., C) of words to word vectors (..., width). Id 0 is padding and is ignored.

    `filters` lists (kernel size, number of filters).
    """

    def __init__(
        self,
        characters: int,
        width: int,
        *,
        embedding: int = 16,
        filters: Sequence[tuple[int, int]] = ((1, 32), (2, 32), (3, 64), (4, 128)),
        highways: int = 2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, count, size) for size, count in filters)
        self.longest = max(size for size, _ in filters)
        total = sum(count for _, count in filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(highways)))
        self.project = nn.Linear(total, width)

    def forward(self, ids: Tensor) -> Tensor:
        # Pad so that a window starts at every character: the result must not depend on the padding of the batch.
        words = nn.functional.pad(ids.flatten(0, -2), (0, self.longest - 1))
        x = self.embedding(words).transpose(1, 2)
        pooled = []
        for convolution in self.convolutions:
            features = torch.relu(convolution(x))
            mask = words[:, None, : features.shape[2]] != 0
            pooled.append(features.masked_fill(~mask, 0.0).amax(2))
        result: Tensor = self.project(self.highways(torch.cat(pooled, dim=1)))
        return result.view(*ids.shape[:-1], -1)


class BiLM(nn.Module):
    """Stacked LSTMs in two independent directions, so each can be trained to predict its next word.

    From the second layer on, the input of a layer is added to its output.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()

        def direction() -> nn.ModuleList:
            size = config.hidden_size if config.cell_size > config.hidden_size else 0
            return nn.ModuleList(
                Lstm(config.hidden_size, config.cell_size, projection=size) for _ in range(config.num_hidden_layers)
            )

        if config.cell_size < config.hidden_size:
            raise ValueError(f"cell_size ({config.cell_size}) must be at least hidden_size ({config.hidden_size})")
        self.forwards, self.backwards = direction(), direction()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Padded) -> Iterator[Tensor]:
        """Yield the states (B, T, 2W) of each layer for vectors (B, T, W), the input first."""
        ahead, back = x, reverse_sequences(x, layout)
        yield torch.cat([x, x], dim=-1)
        for number, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            new_ahead, new_back = _run(forwards, self.dropout(ahead)), _run(backwards, self.dropout(back))
            ahead = new_ahead + ahead if number else new_ahead
            back = new_back + back if number else new_back
            yield torch.cat([ahead, reverse_sequences(back, layout)], dim=-1)


def _run(layer: nn.Module, x: Tensor) -> Tensor:
    with warnings.catch_warnings():  # on a CPU, LSTMs with projections are slower
        warnings.filterwarnings("ignore", message="LSTM with projections")
        states: Tensor = layer(x)[0]
    return states


class Elmo(nn.Module):
    """`model(words, layout)` returns the top layer (B, T, 2W), `model.states` all layers, to combine with `ScalarMix`.

    `words` are character ids (B, T, C), word ids (B, T) or vectors (B, T, W); a packed batch has no dimension B.
    """

    def __init__(self, config: ElmoConfig, *, output_heads: Collection[str] = ("output",)) -> None:
        super().__init__()
        self.config = config
        self.embedding = (
            CharacterCNN(config.num_characters, config.hidden_size)
            if config.num_characters
            else nn.Embedding(config.vocab_size, config.hidden_size)
        )
        self.encoder = BiLM(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size) if "output" in output_heads else None

    def _vectors(self, words: Tensor) -> Tensor:
        if isinstance(self.embedding, nn.Embedding):
            return lookup(self.embedding, words)
        vectors: Tensor = self.embedding(words)
        return vectors

    def states(self, words: Tensor, layout: Layout | None = None) -> Iterator[Tensor]:
        layout = layout or Padded()
        x, shape = to_padded(words if words.is_floating_point() else self._vectors(words), layout)
        for number, state in enumerate(self.encoder(x, shape)):
            result = from_padded(state, layout)
            recording.record_hidden_state(self.encoder, number, result, layout)
            yield result

    def forward(self, words: Tensor, layout: Layout | None = None) -> Tensor:
        *_, last = self.states(words, layout)
        return last

    def logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (..., V) of the next word and those of the previous word, from one output layer."""
        if self.output is None:
            raise TypeError("this ELMo was loaded without its output layer")
        ahead, back = hidden.chunk(2, dim=-1)
        return self.output(ahead), self.output(back)


def config_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the section [model] of pretraining settings."""
    same = ("hidden_size", "num_hidden_layers", "dropout")
    fields = {name: settings[name] for name in same}
    return fields | {"cell_size": settings["intermediate_size"], "num_characters": 0}


FAMILY = Family(
    name="elmo",
    title="an ELMo",
    year=2018,
    description="forward and backward LSTM language models over subwords or characters; layers are mixed",
    model_class=Elmo,
    config_class=ElmoConfig,
    capabilities=frozenset({"bidirectional-lm", "fine-tuning", "layer-mix", "recurrent"}),
    output_heads=("output",),
    pretraining=PretrainingRecipe(
        name="elmo",
        objective="bidirectional-lm",
        config_fields=config_fields,
        defaults={"model": {"num_attention_heads": 1}, "objective": {"sentence_pairs": "none"}},
        unused=(
            "model.num_attention_heads",
            "model.attention_dropout",
            "model.activation",
            "data.position_shift_probability",
        ),
    ),
)
