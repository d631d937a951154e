"""What is known of the languages that a model reads, and a model that reads more."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from regard.checkpoints.files import TASK
from regard.checkpoints.loaded_model import LoadedModel
from regard.files.json_files import read_json
from regard.known import BUILT_IN, DEFAULT_MODEL, MULTILINGUAL, builtin_folder
from regard.models.family import can
from regard.text.language import LanguageProfile
from regard.text.reading import ReadingCount

ENGLISH = "English"
_CARD_LANGUAGE = re.compile(r"\A---\s*\n(?:.*\n)*?language:\s*(?:-\s*)?(\w+)[ \t]*\n(?![ \t]*-\s)")


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
