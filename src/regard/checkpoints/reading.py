"""What is known of the languages that a model reads, a model that reads more, and warnings for Python code."""

from __future__ import annotations

import re
import sys
import warnings
from functools import cache
from pathlib import Path

from regard.checkpoints.files import TASK
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputWarning
from regard.files.json_files import read_json
from regard.known import BUILT_IN, DEFAULT_MODEL, MULTILINGUAL, builtin_folder
from regard.models.family import can
from regard.text.language import LanguageProfile
from regard.text.reading import ReadingCount

ENGLISH = "English"
_CARD_LANGUAGE = re.compile(r"\A---\s*\n(?:.*\n)*?language:\s*(?:-\s*)?(\w+)[ \t]*\n(?![ \t]*-\s)")


class CountedModel:
    """A model of one job, which counts the texts that it cannot read. `loaded` is the model to use.

    Results of verbs carry `warnings`; classes for Python code, which has no other door, call `warn` after their work.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._model = loaded
        # Translators test the language of texts themselves.
        self.count = reading_count(None if loaded.translator is not None else loaded.folder)
        self.loaded = loaded.counting(self.count)
        self._warned: set[str] = set()

    def warnings(self, name: str) -> list[str]:
        """A sentence about the texts that the model could not read; empty if it read all of them."""
        note = self.count.note(name)
        return [] if note is None else [f"{note}.{alternative(self._model)}"]

    def warn(self, name: str) -> None:
        """Warn the calling code once of texts that the model could not read, and once of texts that were cut."""
        cut = [self.count.cut_note()] if self.count.cut else []
        for kind, messages in (("unread", self.warnings(name)), ("cut", cut)):
            if messages and kind not in self._warned:
                self._warned.add(kind)
                warnings.warn(messages[0], InputWarning, stacklevel=_calling_level())


def reading_count(folder: Path | None) -> ReadingCount:
    """A count for the texts of one job, which tests their language if the model states that it reads English."""
    profile = _english() if folder is not None and reads_english(folder) else None
    return ReadingCount() if profile is None else ReadingCount(profile.name, profile.is_foreign)


def reads_english(folder: Path) -> bool:
    """Whether a built-in model, the card of a published one, or the task.json of one that was fine-tuned from these
    states that it reads English only."""
    if folder.name in BUILT_IN and folder == builtin_folder(folder.name):
        return BUILT_IN[folder.name].languages == (ENGLISH,)
    if (folder / TASK).is_file() and read_json(folder / TASK).get("language") == ENGLISH:
        return True
    card = folder / "README.md"
    if not card.is_file():
        return False
    with card.open(encoding="utf-8", errors="replace") as file:
        match = _CARD_LANGUAGE.match(file.read(4096))
    return match is not None and match[1] in ("en", "eng", "english")


def stated_language(folder: Path) -> str:
    """The language that a model states, for models that are fine-tuned from it; empty if that is not known."""
    return ENGLISH if reads_english(folder) else ""


def alternative(loaded: LoadedModel) -> str:
    """A sentence about a model that suits texts in other languages; empty for translators, which have a language."""
    if loaded.translator is not None:
        return ""
    if loaded.fine_tuned is not None:
        return f" A model to fine-tune that reads many languages: {MULTILINGUAL['masked-lm']}."
    is_embedder = loaded.folder is not None and (loaded.folder / "modules.json").is_file()
    kind = "embedding" if is_embedder else "causal-lm" if can(loaded.model, "causal-lm") else "masked-lm"
    return f" A model that reads many languages: {MULTILINGUAL[kind]}."


@cache
def _english() -> LanguageProfile | None:
    return LanguageProfile.open(builtin_folder(DEFAULT_MODEL))


def _calling_level() -> int:
    """The `stacklevel`, counted from the function that calls this one, of the code that called Regard."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("regard."):
        frame, level = frame.f_back, level + 1
    return level
