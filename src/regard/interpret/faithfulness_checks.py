"""The tests of an attention map: what each of them does, what passing and failing it mean, and the verdicts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

PERMUTED = "permuted attention"  # the test that every faithful map passes
Verdict = Literal["faithful", "doubtful", "unfaithful"]
VERDICTS: dict[Verdict, str] = {
    "faithful": "the class depends on this map, and on the words it points at",
    "doubtful": "the class depends on this map, but too few tests support the words it points at",
    "unfaithful": "the class stays the same wherever this map points: do not show it as a reason",
}


class Meaning(NamedTuple):
    """What a test does, and what passing and failing it mean."""

    method: str
    passed: str
    failed: str


SWAP = (
    "Each word is removed alone: does the map follow the drop in the log-odds of this class better than the drop for "
    "the strongest other class?"
)
SWAP_OF_TWO = (
    "Each word is removed alone: does the map follow the drop in the log-odds of this class? With two classes the drop "
    "for the other class is the same with opposite sign, so the value is twice one correlation."
)
MEANINGS = {
    PERMUTED: Meaning(
        "The weights of the map are permuted at random, 100 times: how far does the prediction move, in the median?",
        "The prediction depends on where the map points.",
        "The prediction stays the same wherever the map points, so the map cannot be the reason.",
    ),
    "zeroed values": Meaning(
        "The values of the fifth of the words with the most weight are set to zero: does that move the prediction more "
        "than the same for as many other words?",
        "The words that the map points at carry what the prediction needs.",
        "The words that the map points at carry no more than others do.",
    ),
    "correlation with gradients": Meaning(
        "Do the map and gradient x input rank the words in the same order (Kendall's tau)?",
        "Two measures of importance agree.",
        "Gradients find other words important.",
    ),
    "comprehensiveness": Meaning(
        "The words with the most weight are removed: does the class lose more than without random words?",
        "Without the words that the map points at, the probability of the class falls.",
        "Removing random words changes the class as much.",
    ),
    "sufficiency": Meaning(
        "Only the words with the most weight are kept: does the class lose less than with random words alone?",
        "The words that the map points at are enough for the class.",
        "Random words support the class as well.",
    ),
}


def meanings(classes: int, *, several: bool = False, image: bool = False) -> dict[str, Meaning]:
    """The meaning of each test by name; with `several`, labels do not exclude each other."""
    mirrored = classes == 2 and not several
    swap = Meaning(
        SWAP_OF_TWO if mirrored else SWAP,
        "The map points at evidence for this class"
        + (", and so away from evidence for the other." if mirrored else ", and less at evidence for the other."),
        "The map would do as well as evidence for the other class.",
    )
    found = {"class swap": swap, **MEANINGS}
    return {name: Meaning(*map(_of_patches, one)) for name, one in found.items()} if image else found


def explain_verdict(verdict: Verdict, *, image: bool) -> str:
    return _of_patches(VERDICTS[verdict]) if image else VERDICTS[verdict]


def _of_patches(text: str) -> str:
    """A sentence about words, rewritten for the patches of an image."""
    return re.sub(
        r"([Ww])ord(s?)", lambda match: ("P" if match[1] == "W" else "p") + f"atch{'es' if match[2] else ''}", text
    )


@dataclass(frozen=True)
class FaithfulnessCheck:
    """One test: passed if `value` is at least `threshold`. A map that points at nothing has the value None.

    `method` is what the test does, `means` what its outcome means.
    """

    name: str
    value: float | None
    threshold: float
    numbers: dict[str, float | None]
    passed: bool
    method: str = ""
    means: str = ""

    @classmethod
    def of(cls, name: str, value: float | None, threshold: float, **numbers: float | None) -> FaithfulnessCheck:
        return cls(name, value, threshold, numbers, value is not None and value >= threshold)

    def line(self) -> str:
        value = "none: the map points at nothing" if self.value is None else f"{self.value:z.3f}"
        numbers = ", ".join(f"{name} {number:z.3f}" for name, number in self.numbers.items())
        mark = "passed" if self.passed else "failed"
        return f"  {mark}  {self.name:26}  {value} (at least {self.threshold:.2f}; {numbers})"
