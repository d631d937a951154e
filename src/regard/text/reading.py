"""What a model could not read: texts of unknown tokens, texts in another language, and texts that were cut.

A tokenizer made with `Tokenizer.counting` reports the texts that it encodes. Where none of the ids is the unknown
token, this costs a comparison of the ids. Where the model reads a language of the Latin script, texts in another script
are counted exactly; of the others the language is tested for the first ones, then for one in each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.language import in_another_script
from regard.wording import count_of, were

MAX_UNKNOWN = 0.3  # of the tokens of a text; with more it counts as unreadable
MIN_FOREIGN = 0.05  # of the tested texts; fewer may be names, code or mistakes
MAX_TESTED = 256  # texts whose language is tested; of later batches, one
MAX_SEEN = 10_000  # texts that are remembered, since some analyses encode a text several times


class ReadingCount:
    """Counts the texts of one job. `language` is the one that the model reads, and `is_foreign` tests a text."""

    def __init__(
        self, language: str = "", is_foreign: Callable[[str], bool] | None = None, *, max_tested: int = MAX_TESTED
    ) -> None:
        self.language, self.is_foreign, self.max_tested = language, is_foreign, max_tested
        self.texts = self.unknown_tokens = self.unreadable = self.tested = self.foreign = self.cut = 0
        self.other_script = 0
        self._seen: set[int] = set()

    def add(
        self,
        texts: Sequence[str | tuple[str, str]],
        unknown: NDArray[np.int64],
        lengths: NDArray[np.int64],
        truncated: NDArray[np.int64],
    ) -> None:
        """Count texts: the unknown tokens of each, all its tokens, and those cut from it."""
        new = np.arange(len(texts))
        if len(self._seen) < MAX_SEEN:
            new = new[np.fromiter(map(self._is_new, texts), dtype=bool, count=len(texts))]
        if not len(new):
            return
        self.texts += len(new)
        self.cut += int(np.count_nonzero(truncated[new]))
        self.unknown_tokens += int(unknown[new].sum())
        self.unreadable += int(np.count_nonzero(unknown[new] >= MAX_UNKNOWN * lengths[new].clip(1)))
        if self.is_foreign is not None:
            latin = []
            for index in new.tolist():
                item = texts[index]
                text = item if isinstance(item, str) else " ".join(item)
                if in_another_script(text):
                    self.other_script += 1
                else:
                    latin.append(text)
            for text in latin[: max(1, self.max_tested - self.tested)]:
                self.tested += 1
                self.foreign += self.is_foreign(text)

    def note(self, model: str) -> str | None:
        """A warning about texts that the model cannot read; None if it reads them, or nearly all of them."""
        found = []
        foreign = self.foreign if self.foreign > MIN_FOREIGN * self.tested else 0
        if foreign or self.other_script:
            texts = count_of(foreign + self.other_script, "text")
            found.append(f"{model} reads {self.language}, and not the language of {texts}")
        if self.unreadable:
            texts = count_of(self.unreadable, "text")
            found.append(f"{'it' if found else model} does not know {MAX_UNKNOWN:.0%} or more of the tokens of {texts}")
        return f"{'; '.join(found)}: the results may be meaningless" if found else None

    def cut_note(self) -> str:
        """Say how many texts were cut."""
        return f"{count_of(self.cut, 'text')} had more tokens than the model takes and {were(self.cut)} cut"

    def _is_new(self, text: str | tuple[str, str]) -> bool:
        before = len(self._seen)
        self._seen.add(hash(text))
        return len(self._seen) > before
