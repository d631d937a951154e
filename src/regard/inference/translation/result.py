"""The result of translating: the translations of each text, best first, or the scores of given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from regard.errors import InputError
from regard.inference.translation.forced_decoding import ForcedTarget
from regard.inference.translation.translator import Translation
from regard.render.result import Result, Table


@dataclass(frozen=True)
class TranslatedText:
    """A text and its translations, best first."""

    source: str
    translations: list[Translation]

    def lines(self, number: int, *, several: bool, alone: bool = False) -> str:
        """One line per translation; with `several`, after the number of the text and the score.

        The translation of a text that is `alone` keeps its line breaks.
        """
        separator = "\n" if alone and not several else " "  # elsewhere a line break would end the line of its text
        texts = [
            separator.join(item.text.split("\n")).encode("utf-8", "backslashreplace").decode()
            for item in self.translations
        ]
        scores = [f"{number}\t{item.score:.4f}\t" if several else "" for item in self.translations]
        return "".join(f"{score}{text}\n" for score, text in zip(scores, texts, strict=True))


class TranslationResult(Result):
    """The translations of all texts and, if there were references, their BLEU scores.

    `targets` are given translations of one text, with their log-probabilities and alignments. `notes` warn of texts
    that are not in the language that the translator reads, and of translations that may not be complete.
    """

    page_view: ClassVar[str | None] = "translation"
    view_type: ClassVar[str | None] = "regard.interpret.translation:TranslationSteps"

    model: str
    texts: list[TranslatedText]
    bleu: dict[str, float | str] | None = None
    targets: list[ForcedTarget] | None = None
    notes: list[str] = Field(default_factory=list)
    _steps: Mapping[str, object] | None = PrivateAttr(None)  # the data of the page's view, if they were recorded

    def view_data(self) -> Mapping[str, object]:
        if self._steps is None:
            raise InputError("the page shows the decoding steps of one text; translate it with --steps")
        return self._steps

    def to_dict(self) -> dict[str, Any]:
        document = self.model_dump(mode="json", exclude_none=True)
        found = [one for text in document["texts"] for one in text["translations"]]
        for translation in (*found, *(target["translation"] for target in document.get("targets", ()))):
            del translation["ids"]
            for sentence in translation["sentences"]:
                del sentence["ids"]
        return document

    def to_table(self) -> Table:
        """A row for each translation; `text` counts the texts from 0."""
        rows: list[list[object]] = []
        for number, text in enumerate(self.texts):
            found = [[one.text, one.log_probability, one.score] for one in text.translations]
            rows += [[number, text.source, *cells] for cells in found or [[None, None, None]]]
        return ["text", "source", "translation", "log_probability", "score"], rows

    def to_text(self) -> str:
        if self.targets is not None:
            return "\n\n".join(target.to_text() for target in self.targets)
        several = any(len(text.translations) > 1 for text in self.texts)
        alone = len(self.texts) == 1
        lines = [text.lines(number, several=several, alone=alone) for number, text in enumerate(self.texts)]
        return "".join(lines).rstrip("\n")
