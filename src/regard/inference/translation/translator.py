"""Translation: texts are encoded, searched in batches of similar length, decoded, and returned in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from regard.data.batch import collate, group_by_token_budget
from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.inference.generation.decoder import as_decoder
from regard.inference.generation.fast_decoder import reuse_packed_weights
from regard.inference.translation.alignment import Alignment, AlignmentHeads, align
from regard.inference.translation.model import TranslationModel
from regard.inference.translation.subwords import Subwords
from regard.nn import Padded
from regard.render.result import Result

if TYPE_CHECKING:
    from regard.inference.generation.trace import Trace

__all__ = ["TranslatedText", "Translation", "TranslationResult", "Translator"]

BUDGET = 8192  # tokens of a batch, beams counted


@dataclass(frozen=True)
class Translation:
    """A translation; those of one text are ranked by `score`, and `log_probability` is the plain sum.

    Not `finished`: it was truncated at twice the length of its source.
    """

    text: str
    ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


@dataclass(frozen=True)
class TranslatedText:
    """A text and its translations, best first."""

    source: str
    translations: list[Translation]

    def lines(self, number: int, *, several: bool) -> str:
        """One line per translation; with `several`, after the number of the text and the score."""
        # A line feed inside a translation would end its line.
        texts = [
            " ".join(one.text.split("\n")).encode("utf-8", "backslashreplace").decode() for one in self.translations
        ]
        scores = [f"{number}\t{one.score:.4f}\t" if several else "" for one in self.translations]
        return "".join(f"{score}{text}\n" for score, text in zip(scores, texts, strict=True))


class TranslationResult(Result):
    """The translations of all texts and, if there were references, their BLEU scores."""

    model: str
    texts: list[TranslatedText]
    bleu: dict[str, float | str] | None = None

    def to_dict(self) -> dict[str, Any]:
        document = self.model_dump(mode="json", exclude_none=True)
        for text in document["texts"]:
            for one in text["translations"]:
                del one["ids"]
        return document

    def to_text(self) -> str:
        several = any(len(one.translations) > 1 for one in self.texts)
        return "".join(one.lines(number, several=several) for number, one in enumerate(self.texts)).rstrip("\n")


@dataclass(frozen=True, eq=False)
class Translator:
    """A translation model, its subwords, and the heads that alignments are made of."""

    model: TranslationModel
    subwords: Subwords
    alignment_heads: AlignmentHeads

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: Beam | None = None,
        trace: Trace | None = None,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> list[list[Translation]]:
        """The best translations of each text, best first; without a beam the greedy one. "" for a text of nothing.

        `on_progress` is called with the number of newly finished texts. A trace records non-empty texts, all in one
        batch, and numbers its rows as `texts` are.
        """
        found: list[list[Translation]] = [[Translation("", (), 0.0, 0.0, True)] for _ in texts]
        full = [place for place, text in enumerate(texts) if text.strip()]
        on_progress(len(texts) - len(full))
        sources = self.subwords.encode_sources([texts[place] for place in full])
        rooms = group_by_token_budget([len(ids) for ids in sources], BUDGET // (beam.num_beams if beam else 1))
        if trace is not None:
            trace.set_row_numbers(full)
            beam, rooms = beam or Beam(num_beams=1), [list(range(len(full)))] if full else []
        with reuse_packed_weights():
            for group in rooms:
                for place, several in zip(group, self._search([sources[i] for i in group], beam, trace), strict=True):
                    found[full[place]] = [self._translation(one) for one in several]
                on_progress(len(group))
        return found

    def align(self, text: str, ids: Sequence[int]) -> Alignment:
        """The alignment of a text with a translation, given by its ids: the model's own or any other."""
        return align(self.model, self.subwords, text, ids, alignment_heads=self.alignment_heads)

    def encode_translation(self, translation: str) -> list[int]:
        """The ids of any translation, for `align`."""
        return self.subwords.encode_targets([translation])[0][:-1]

    def _search(self, sources: list[list[int]], beam: Beam | None, trace: Trace | None) -> list[list[Hypothesis]]:
        batch = collate(sources, packed=False).to(self.device)
        assert isinstance(batch.layout, Padded)
        most = 2 * max(map(len, sources)) + 10
        speaker, end = as_decoder(self.model), self.subwords.end
        if beam is None:
            return [[one] for one in greedy_search(speaker, batch.ids, batch.layout, end=end, max_new_tokens=most)]
        return beam_search(speaker, batch.ids, batch.layout, beam=beam, end=end, max_new_tokens=most, trace=trace)

    def _translation(self, found: Hypothesis) -> Translation:
        text = self.subwords.decode(found.ids)
        return Translation(text, found.ids, found.log_probability, found.score, found.finished)
