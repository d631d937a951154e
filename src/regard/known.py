"""The default models and those that come with Regard. Importing this does not import torch."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEFAULT_CAUSAL_LM", "DEFAULT_MODEL", "builtin_folder", "builtin_names", "is_builtin"]

DEFAULT_MODEL = "regard-bert"  # of every verb that is given none
DEFAULT_CAUSAL_LM = "regard-gpt"  # of verbs that need a model that predicts the next token

_BUILT_IN = Path(__file__).parent / "builtin"


def builtin_names() -> list[str]:
    """The names of the models that came with Regard."""
    found = _BUILT_IN.iterdir() if _BUILT_IN.is_dir() else ()
    return sorted(entry.name for entry in found if (entry / "config.json").is_file())


def builtin_folder(name: str) -> Path:
    return _BUILT_IN / name


def is_builtin(path: Path) -> bool:
    """Whether a file came with Regard."""
    return path.resolve().is_relative_to(_BUILT_IN.resolve())
