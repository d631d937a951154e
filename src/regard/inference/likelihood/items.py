"""One question of a benchmark: ways to go on with a text, of which a likely one should be the right one.

Plain data: no file, no token, no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Candidate", "Item"]


class Candidate(NamedTuple):
    """How likely is `ending` behind `context`? The blank between them is the ending's."""

    context: str
    ending: str

    @property
    def bytes(self) -> int:
        """Of the ending, the blanks around it apart."""
        return len(self.ending.strip().encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Item:
    """`label` is the place of the right candidate; a word that is to be told is the only one. `where` is for errors."""

    candidates: tuple[Candidate, ...]
    label: int
    where: str
