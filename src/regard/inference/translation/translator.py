"""The translator: encodes texts, searches in batches of similar length, decodes, and returns translations in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import PrivateAttr

from regard.data.batch import collate, group_by_token_budget
from regard.errors import InputError
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

BUDGET = 8192  # tokens per batch, times the number of beams


@dataclass(frozen=True)
class Translation:
    """A translation. Translations of a text are ranked by `score`; `log_probability` is the sum over the tokens.

    If it is not `finished`, it was truncated at about twice the length of its source.
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
        # A line break inside a translation would end its line.
        texts = [
            " ".join(item.text.split("\n")).encode("utf-8", "backslashreplace").decode() for item in self.translations
        ]
        scores = [f"{number}\t{item.score:.4f}\t" if several else "" for item in self.translations]
        return "".join(f"{score}{text}\n" for score, text in zip(scores, texts, strict=True))


class TranslationResult(Result):
    """The translations of all texts and, if there were references, their BLEU scores."""

    page_view: ClassVar[str | None] = "translation"
    view_type: ClassVar[str | None] = "regard.interpret.translation:TranslationView"

    model: str
    texts: list[TranslatedText]
    bleu: dict[str, float | str] | None = None
    _steps: Mapping[str, object] | None = PrivateAttr(None)  # the data of the page's view, if they were recorded

    def view_data(self) -> Mapping[str, object]:
        if self._steps is None:
            raise InputError("the page shows the decoding steps of one text; translate it with --steps")
        return self._steps

    def to_dict(self) -> dict[str, Any]:
        document = self.model_dump(mode="json", exclude_none=True)
        for text in document["texts"]:
            for translation in text["translations"]:
                del translation["ids"]
        return document

    def to_text(self) -> str:
        several = any(len(text.translations) > 1 for text in self.texts)
        return "".join(text.lines(number, several=several) for number, text in enumerate(self.texts)).rstrip("\n")


@dataclass(frozen=True, eq=False)
class Translator:
    """A translation model, its subwords, and the attention heads that define alignments."""

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
        """The translations of each text, best first; without a beam, the greedy one. A blank text gives "".

        `on_progress` is called with the number of newly finished texts. A trace records non-blank texts, all in one
        batch, and numbers its rows by their index in `texts`.
        """
        translations: list[list[Translation]] = [[Translation("", (), 0.0, 0.0, True)] for _ in texts]
        indices = [index for index, text in enumerate(texts) if text.strip()]
        on_progress(len(texts) - len(indices))
        sources = self.subwords.encode_sources([texts[index] for index in indices])
        groups = group_by_token_budget([len(ids) for ids in sources], BUDGET // (beam.num_beams if beam else 1))
        if trace is not None:
            trace.set_row_numbers(indices)
            beam, groups = beam or Beam(num_beams=1), [list(range(len(indices)))] if indices else []
        with reuse_packed_weights():
            for group in groups:
                results = self._search([sources[row] for row in group], beam, trace)
                for row, hypotheses in zip(group, results, strict=True):
                    translations[indices[row]] = [self._translation(hypothesis) for hypothesis in hypotheses]
                on_progress(len(group))
        return translations

    def align(self, text: str, ids: Sequence[int]) -> Alignment:
        """Align a text with a translation, given by its ids; it need not be the model's own."""
        return align(self.model, self.subwords, text, ids, alignment_heads=self.alignment_heads)

    def encode_translation(self, translation: str) -> list[int]:
        """The ids of any translation, for `align`."""
        return self.subwords.encode_targets([translation])[0][:-1]

    def _search(self, sources: list[list[int]], beam: Beam | None, trace: Trace | None) -> list[list[Hypothesis]]:
        batch = collate(sources, packed=False).to(self.device)
        assert isinstance(batch.layout, Padded)
        max_new_tokens = 2 * max(map(len, sources)) + 10
        decoder, end = as_decoder(self.model), self.subwords.end
        if beam is None:
            hypotheses = greedy_search(decoder, batch.ids, batch.layout, end=end, max_new_tokens=max_new_tokens)
            return [[hypothesis] for hypothesis in hypotheses]
        return beam_search(
            decoder, batch.ids, batch.layout, beam=beam, end=end, max_new_tokens=max_new_tokens, trace=trace
        )

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = self.subwords.decode(hypothesis.ids)
        return Translation(text, hypothesis.ids, hypothesis.log_probability, hypothesis.score, hypothesis.finished)
