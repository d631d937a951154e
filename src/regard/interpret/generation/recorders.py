"""Those who listen while a text is written: to a sampler for the bars of each token, to a search for how far it is.

Knows what samplers and searches report to a `Trace`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.inference.generation.beam_search import Continuation
from regard.inference.generation.text_stream import token_text
from regard.inference.generation.trace import Trace
from regard.interpret.generation.candidates import CandidateTokens, candidate_tokens
from regard.text import Tokenizer

__all__ = ["BeamSearchProgress", "CandidateRecorder", "Event", "GeneratedToken", "OnEvent"]

Event = Mapping[str, object]
OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class GeneratedToken:
    """What was said at one place. `text` is what it adds to the text, `name` the token by itself."""

    id: int
    text: str
    name: str
    candidates: CandidateTokens

    def document(self) -> dict[str, object]:
        return {"id": self.id, "text": self.text, "name": self.name, **self.candidates.document()}


class CandidateRecorder(Trace):
    """Makes bars of what a sampler reports, and gives them out with the text that comes behind."""

    def __init__(self, spell: Callable[[int], str]) -> None:
        super().__init__(token_text=spell)
        self.spell = spell
        self.waiting: list[tuple[int, CandidateTokens]] = []

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        self.waiting.append((token, candidate_tokens(logits, stages, spell=self.spell, chosen=token)))

    def taken(self, piece: str) -> list[GeneratedToken]:
        """The tokens since the last text; the text belongs to the last of them."""
        last = len(self.waiting) - 1
        found = [
            GeneratedToken(token, piece if number == last else "", self.spell(token), bars)
            for number, (token, bars) in enumerate(self.waiting)
        ]
        self.waiting = []
        return found


class BeamSearchProgress(Trace):
    """The trace of a search that also tells how far it is."""

    def __init__(self, tokenizer: Tokenizer, *, of: int, tell: OnEvent) -> None:
        super().__init__(token_text=lambda token: token_text(tokenizer, token), decode=tokenizer.decode)
        self.tokenizer, self.of, self.tell_on = tokenizer, of, tell
        self.paths: list[list[int]] = [[]]
        self.step = 0

    def beam(
        self,
        row: int,
        table: Tensor,
        going: Sequence[Continuation],
        ended: Sequence[Continuation],
        *,
        end: int | None,
    ) -> None:
        super().beam(row, table, going, ended, end=end)
        self.step += 1
        self.paths = [[*self.paths[one.slot], one.token] for one in going] or [[]]
        best = self.tokenizer.decode(self.paths[0])
        self.tell_on({"step": self.step, "of": self.of, "text": best})
