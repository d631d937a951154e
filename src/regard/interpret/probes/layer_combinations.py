"""Combinations of layers to probe: each layer, the rows of the lecture's table, and a learned mix of all.

Layer 0 is the output of the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Operation = Literal["only", "sum", "concat", "mix"]

# CoNLL-2003 dev F1 in the lecture's table, in its order.
DECK = {
    "First Layer": 91.0,
    "Last Hidden Layer": 94.9,
    "Sum All Layers": 95.5,
    "Second-to-Last Hidden Layer": 95.6,
    "Sum Last Four Hidden": 95.9,
    "Concat Last Four Hidden": 96.1,
}

DECK_NOTE = (
    "The scores of the deck are those of the BERT paper (table 7): BERT base, CoNLL-2003 dev F1, a two-layer BiLSTM on "
    "the frozen layers. Its first layer is the output of the embeddings (layer 0), and its sums are weighted, as the "
    "learned mix is. They are not comparable with scores of another model, head or dataset."
)


@dataclass(frozen=True)
class LayerCombination:
    """Layers joined by an operation ("only" for a single layer); a mix learns its weights with the head."""

    name: str
    operation: Operation
    layers: tuple[int, ...]


def single_layers(count: int) -> list[LayerCombination]:
    """Each of `count` hidden states."""
    names = ["layer 0 (embeddings)", *(f"layer {number}" for number in range(1, count))]
    return [LayerCombination(name, "only", (number,)) for number, name in enumerate(names)]


def deck_combinations(count: int) -> list[LayerCombination]:
    """The six rows of the table for a model with `count` hidden states. Sums leave out the embeddings."""
    layers = tuple(range(1, count)) or (0,)
    return [
        LayerCombination("First Layer", "only", (0,)),
        LayerCombination("Last Hidden Layer", "only", (count - 1,)),
        LayerCombination("Sum All Layers", "sum", layers),
        LayerCombination("Second-to-Last Hidden Layer", "only", (max(count - 2, 0),)),
        LayerCombination("Sum Last Four Hidden", "sum", layers[-4:]),
        LayerCombination("Concat Last Four Hidden", "concat", layers[-4:]),
    ]


def scalar_mix(count: int) -> LayerCombination:
    """A weighted sum of all hidden states with the embeddings, as in ELMo."""
    return LayerCombination("Learned scalar mix", "mix", tuple(range(count)))
