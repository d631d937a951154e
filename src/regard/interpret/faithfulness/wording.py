"""What the honesty meter's tests and verdicts mean, in sentences. Knows words, and no number but how many classes there
are. docs/honesty.md says it at length.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["VERDICTS", "Meaning", "meanings"]

VERDICTS = {
    "honest": "the class depends on this map, and on what it points at",
    "doubtful": "the class depends on this map, but too little speaks for what it points at",
    "decoration": "the class stays as it is wherever this map looks: do not show it as a reason",
}


class Meaning(NamedTuple):
    """Of a test: what is done, and what it means where it is passed and where it is failed."""

    done: str
    passed: str
    failed: str


SWAP = (
    "Each word is taken out alone: does the map follow the drop of this class's log-odds better than that of the "
    "strongest other class's?"
)
SWAP_OF_TWO = (
    "Each word is taken out alone: does the map follow the drop of this class's log-odds? Of two classes the other's "
    "drop is the same with its sign turned, so the number is twice one correlation."
)
REST = {
    "permuted attention": Meaning(
        "The weights of the map change places at random, 100 times: how far does the answer move, in the median?",
        "Where the map looks matters for the answer.",
        "The answer stays the same wherever the map looks, so it cannot be the reason.",
    ),
    "zeroed values": Meaning(
        "What the map takes from the fifth of the words it points at becomes zero: does that move the answer more than "
        "as many other words do?",
        "The words that the map points at hand on what the answer needs.",
        "The words that the map points at hand on no more than others do.",
    ),
    "correlation with gradients": Meaning(
        "Do the map and gradient x input put the words into the same order (Kendall's tau)?",
        "Two ways to say which words count agree.",
        "Gradients say that other words count.",
    ),
    "comprehensiveness": Meaning(
        "The words with the most weight are taken out: does the class lose more than without random words?",
        "Without the words that the map points at, the class falls.",
        "The class does as well, or as badly, without words chosen at random.",
    ),
    "sufficiency": Meaning(
        "Only the words with the most weight are left: does the class lose less than with random words alone?",
        "The words that the map points at are enough for the class.",
        "Words chosen at random carry the class as well.",
    ),
}


def meanings(classes: int, *, several: bool = False) -> dict[str, Meaning]:
    """The meaning of each test by its name; `several` labels may hold at once."""
    mirrored = classes == 2 and not several
    swap = Meaning(
        SWAP_OF_TWO if mirrored else SWAP,
        "The map points at what speaks for this class"
        + (", and so away from what speaks for the other." if mirrored else ", and less at what speaks for the other."),
        "The map would do as well as evidence for the other class.",
    )
    return {"class swap": swap, **REST}
