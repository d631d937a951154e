"""What can be made of a model's layers: each one alone, the rows of the lecture's table, and a learned mix of all.

Plain data. Layer 0 is the embeddings' output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DECK", "DECK_NOTE", "Combination", "each_layer", "of_the_deck", "scalar_mix"]

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
    "The deck's numbers are those of the BERT paper (table 7): BERT base, CoNLL-2003 dev F1, a two-layer BiLSTM on the "
    "frozen layers. Its first layer is the embeddings' output there (layer 0), and the sums of the paper are weighted, "
    "as the learned mix is: numbers of another model, head or data do not compare."
)


@dataclass(frozen=True)
class Combination:
    """`chosen` layers, joined by `operation` ("only" where there is one); a mix learns its weights with the head."""

    name: str
    operation: Operation
    chosen: tuple[int, ...]


def each_layer(count: int) -> list[Combination]:
    """Every one of `count` hidden states by itself."""
    names = ["layer 0 (embeddings)", *(f"layer {number}" for number in range(1, count))]
    return [Combination(name, "only", (number,)) for number, name in enumerate(names)]


def of_the_deck(count: int) -> list[Combination]:
    """The six rows of the table for a model with `count` hidden states. Sums are of layers, not of the embeddings."""
    layers = tuple(range(1, count)) or (0,)
    return [
        Combination("First Layer", "only", (0,)),
        Combination("Last Hidden Layer", "only", (count - 1,)),
        Combination("Sum All Layers", "sum", layers),
        Combination("Second-to-Last Hidden Layer", "only", (max(count - 2, 0),)),
        Combination("Sum Last Four Hidden", "sum", layers[-4:]),
        Combination("Concat Last Four Hidden", "concat", layers[-4:]),
    ]


def scalar_mix(count: int) -> Combination:
    """A weighted sum of all hidden states, the embeddings too, as ELMo has it."""
    return Combination("Learned scalar mix", "mix", tuple(range(count)))
