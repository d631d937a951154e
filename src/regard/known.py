"""The default models and the built-in models. Importing this module does not import torch."""

from __future__ import annotations

from pathlib import Path

DEFAULT_MODEL = "regard-bert"  # for verbs that are given no model
DEFAULT_EMBEDDING_MODEL = "regard-embed"  # for sentence vectors: embed, index, search, map
DEFAULT_CAUSAL_LM = "regard-gpt"  # for verbs that need a causal language model

_BUILT_IN = Path(__file__).parent / "builtin"


def builtin_names() -> list[str]:
    """Return the names of the built-in models."""
    folders = _BUILT_IN.iterdir() if _BUILT_IN.is_dir() else ()
    return sorted(entry.name for entry in folders if (entry / "config.json").is_file())


def builtin_folder(name: str) -> Path:
    return _BUILT_IN / name


def is_builtin(path: Path) -> bool:
    """Whether a file belongs to a built-in model."""
    return path.resolve().is_relative_to(_BUILT_IN.resolve())
