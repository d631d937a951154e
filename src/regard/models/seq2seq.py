"""Recurrent encoder-decoders (LSTM or GRU), with or without attention.

The sequences are vectors of any kind, or tokens if `embedding_size` is set. Without attention the decoder receives only
the last state of the encoder; with attention, each step attends to all of its states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import check_choice
from regard.models.family import Family, TranslationRecipe
from regard.nn import recording
from regard.nn.attention import Attention, bahdanau, luong_dot, luong_general
from regard.nn.cache import KVCache
from regard.nn.embedding import lookup
from regard.nn.masks import Context, Layout, Padded, to_padded
from regard.nn.recurrent import CellType, Recurrent, RecurrentState, StackedCell

Score = Literal["none", "dot", "general", "additive"]
Recipe = Literal["luong", "deck"]


@dataclass(frozen=True)
class Seq2SeqConfig:
    """`source_size` and `target_size` are vector widths, or vocabulary sizes if `embedding_size` is not 0.

    Recipe "luong": the new decoder state attends to the source, and the output layer reads state and context.
    Recipe "deck": the previous decoder state attends to the source, and the context is part of the cell's input.
    `feedback` maps a decoder's output vector to its next input: "softmax" for one-hot vectors such as letters,
    "identity" for frames. Dropout applies to token vectors, between layers, and before the output layer.
    """

    family: str = "seq2seq"
    source_size: int = 10
    target_size: int = 10
    hidden_size: int = 16
    embedding_size: int = 0
    num_hidden_layers: int = 1
    cell: CellType = "lstm"
    bidirectional: bool = False
    score: Score = "none"
    recipe: Recipe = "luong"
    feedback: Literal["softmax", "identity"] = "softmax"
    dropout: float = 0.0
    decoder_start_token_id: int = 0  # a decoder of vectors starts with zeros instead

    def __post_init__(self) -> None:
        check_choice("score", self.score, get_args(Score))
        check_choice("recipe", self.recipe, get_args(Recipe))
        check_choice("feedback", self.feedback, ("softmax", "identity"))
        check_choice("cell", self.cell, get_args(CellType))


@dataclass(eq=False)
class Seq2SeqState:
    """The state of a decoder: cell state, last output, encoder states and their cached keys."""

    hidden: RecurrentState
    output: Tensor
    memory: Tensor
    memory_layout: Padded
    cache: KVCache = field(default_factory=KVCache)

    def reorder(self, index: Tensor) -> None:
        """Row i continues row index[i]."""
        self.hidden = tuple(part[:, index] for part in self.hidden)
        self.output, self.memory = self.output[index], self.memory[index]
        self.cache.reorder(index)
        if self.memory_layout.mask is not None:
            self.memory_layout = Padded(self.memory_layout.mask[index])


class RecurrentEncoder(nn.Module):
    """Maps vectors (B, S, F) to all states and the last state of every layer."""

    def __init__(self, width: int, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.recurrent = Recurrent(
            width,
            config.hidden_size,
            cell=config.cell,
            depth=config.num_hidden_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )

    def forward(self, x: Tensor, layout: Layout) -> tuple[Tensor, RecurrentState]:
        recording.record_hidden_state(self, 0, x, layout)
        states, last = self.recurrent(x, layout)
        recording.record_hidden_state(self, 1, states, layout)
        return states, last


def _attention(score: Score, units: int) -> Attention | None:
    if score == "none":
        return None
    return luong_dot() if score == "dot" else luong_general(units) if score == "general" else bahdanau(units)


class RecurrentDecoder(nn.Module):
    """One decoding step: maps the vector of the last token and the state to the logits of the next token."""

    def __init__(self, width: int, config: Seq2SeqConfig) -> None:
        super().__init__()
        units, attends = config.hidden_size, config.score != "none"
        self.cross = _attention(config.score, units)
        self.context_first = attends and config.recipe == "deck"
        self.cell = StackedCell(
            width + (units if self.context_first else 0),
            units,
            cell=config.cell,
            depth=config.num_hidden_layers,
            dropout=config.dropout,
        )
        self.join = nn.Linear(2 * units, units) if attends and config.recipe == "luong" else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(units, config.target_size)

    def forward(self, x: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        output, state = self._step(x, state)
        return self._logits(output[:, None], state)[:, 0], state

    def forward_sequence(self, x: Tensor, state: Seq2SeqState) -> Tensor:
        """Return the logits (B, T, target) of all steps for their inputs (B, T, width)."""
        if not self.context_first:  # the cell does not depend on the context
            recording.record_hidden_state(self, 0, x, Padded())
            outputs, _ = self.cell(x, state.hidden)
            recording.record_hidden_state(self, 1, outputs, Padded())
            return self._logits(outputs, state)
        steps = []
        for part in x.unbind(1):
            output, state = self._step(part, state)
            steps.append(output)
        return self._logits(torch.stack(steps, dim=1), state)

    def _step(self, x: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        recording.record_hidden_state(self, 0, x[:, None], Padded())
        if self.context_first:
            x = torch.cat([self._attend(state.output[:, None], state)[:, 0], x], dim=-1)
        output, hidden = self.cell(x, state.hidden)
        recording.record_hidden_state(self, 1, output[:, None], Padded())
        return output, Seq2SeqState(hidden, output, state.memory, state.memory_layout, state.cache)

    def _logits(self, outputs: Tensor, state: Seq2SeqState) -> Tensor:
        if self.join is not None:
            outputs = torch.tanh(self.join(torch.cat([outputs, self._attend(outputs, state)], dim=-1)))
        logits: Tensor = self.output(self.dropout(outputs))
        return logits

    def _attend(self, query: Tensor, state: Seq2SeqState) -> Tensor:
        """Return the context vectors (B, T, units); the keys of the encoder states are computed once."""
        assert self.cross is not None
        context: Tensor = self.cross(query, Context(Padded(), state.memory, state.memory_layout, cache=state.cache))
        return context


class Seq2Seq(nn.Module):
    """`model(source, target)` returns the logits (B, T, target) of each next item."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        words = config.embedding_size
        self.source_embedding = nn.Embedding(config.source_size, words) if words else None
        self.target_embedding = nn.Embedding(config.target_size, words) if words else None
        self.dropout = nn.Dropout(config.dropout if words else 0.0)
        self.encoder = RecurrentEncoder(words or config.source_size, config)
        self.decoder = RecurrentDecoder(words or config.target_size, config)

    def forward(
        self,
        source: Tensor,
        target: Tensor | None = None,
        layout: Layout | None = None,
        *,
        steps: int | None = None,
    ) -> Tensor:
        """Return the logits of all steps: with teacher forcing if there is a target, else free-running for `steps`."""
        state = self.encode(source, layout)
        if target is not None:
            first = self._first(state)[:, None]
            return self.decoder.forward_sequence(torch.cat([first, self._vector(target[:, :-1])], dim=1), state)
        if steps is None:
            raise ValueError("expected a target for teacher forcing, or a number of steps")
        x, outputs = self._first(state), []
        for _ in range(steps):
            logits, state = self.decoder(x, state)
            outputs.append(logits)
            x = self._next(logits)
        return torch.stack(outputs, dim=1)

    def teacher_forced_logits(self, source: Tensor, layout: Layout, target: Tensor) -> Tensor:
        return self(source, target, layout)  # type: ignore[no-any-return]

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The vocabulary sizes of source and target."""
        return self.config.source_size, self.config.target_size

    def encode(self, source: Tensor, layout: Layout | None = None) -> Seq2SeqState:
        """Encode the source, vectors (B, S, F) or ids (B, S); a packed batch has no dimension B."""
        layout = layout or Padded()
        x = source if self.source_embedding is None else self.dropout(lookup(self.source_embedding, source))
        memory, last = self.encoder(x, layout)
        memory, shape = to_padded(memory, layout)
        return Seq2SeqState(last, last[0][-1], memory, shape)

    def start(self, source: Tensor, layout: Layout | None = None) -> tuple[Tensor, Seq2SeqState]:
        """Encode the sources and decode the start token; return the logits (B, target) and the state."""
        state = self.encode(source, layout)
        logits, state = self.decoder(self._first(state), state)
        return logits, state

    def step(self, items: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        """Append an item to each row, tokens (B,) or vectors (B, target); return the logits and the state."""
        logits, state = self.decoder(self._vector(items), state)
        return logits, state

    def _first(self, state: Seq2SeqState) -> Tensor:
        if self.target_embedding is None:
            return state.output.new_zeros(len(state.output), self.config.target_size)
        return self._vector(
            torch.full((len(state.output),), self.config.decoder_start_token_id, device=state.output.device)
        )

    def _vector(self, items: Tensor) -> Tensor:
        result: Tensor = items if self.target_embedding is None else self.dropout(lookup(self.target_embedding, items))
        return result

    def _next(self, logits: Tensor) -> Tensor:
        if self.target_embedding is not None:
            return self._vector(logits.argmax(-1))
        return logits.softmax(-1) if self.config.feedback == "softmax" else logits


def translation_fields(settings: Mapping[str, Any], subwords: Any) -> dict[str, Any]:
    """Convert the section [model] of translation settings."""
    same = ("hidden_size", "embedding_size", "num_hidden_layers", "bidirectional", "score", "recipe", "dropout")
    sizes = {"source_size": subwords.source.size, "target_size": subwords.target.size}
    return {name: settings[name] for name in same} | sizes | {"decoder_start_token_id": subwords.begin}


FAMILY = Family(
    name="seq2seq",
    title="a Seq2Seq",
    year=2014,
    description="LSTM or GRU encoder-decoder; attention none, dot, general or additive; recipe luong or deck",
    model_class=Seq2Seq,
    config_class=Seq2SeqConfig,
    capabilities=frozenset({"encoder-decoder", "translation", "recurrent"}),
    # fp32: on a GPU, PyTorch's LSTM kernel computes in float16 under autocast, whatever type is requested, and small
    # gradients underflow.
    translation=TranslationRecipe(
        "lstm",
        translation_fields,
        {"model": {"hidden_size": 512, "num_hidden_layers": 1}, "run": {"precision": "fp32"}},
    ),
)
