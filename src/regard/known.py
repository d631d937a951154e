"""The default models and the built-in models. Importing this module does not import torch.

The folders of built-in models are in this package, and in the package `regard_models` of the distribution
regard-models, which keeps both below the size limit of PyPI. In the source tree, all are in `src/regard/builtin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

DEFAULT_MODEL = "regard-bert"  # for verbs that are given no model
DEFAULT_EMBEDDING_MODEL = "regard-embed"  # for sentence vectors: embed, index, search, map
DEFAULT_CAUSAL_LM = "regard-gpt"  # for verbs that need a causal language model

# Published models for texts in languages that the built-in ones do not read, by what they are for.
MULTILINGUAL = {
    "embedding": "intfloat/multilingual-e5-small",
    "masked-lm": "google-bert/bert-base-multilingual-cased",
    "causal-lm": "Qwen/Qwen2.5-0.5B",
}

_BUILT_IN = Path(__file__).parent / "builtin"
_SECOND_PACKAGE = "regard_models"
INSTALL = 'pip install "regard[models]"'


@dataclass(frozen=True)
class BuiltInModel:
    """The languages of a built-in model, source and target of a translator, and whether regard-models contains it."""

    languages: tuple[str, ...] = ("English",)
    second_package: bool = False


BUILT_IN = {
    "regard-bert": BuiltInModel(),
    "regard-de-en": BuiltInModel(("German", "English"), second_package=True),
    "regard-de-en-postnorm": BuiltInModel(("German", "English"), second_package=True),
    "regard-digits": BuiltInModel(()),
    "regard-elmo": BuiltInModel(second_package=True),
    "regard-embed": BuiltInModel(),
    "regard-fr-en": BuiltInModel(("French", "English"), second_package=True),
    "regard-gpt": BuiltInModel(second_package=True),
    "regard-lstm-fr-en": BuiltInModel(("French", "English"), second_package=True),
    "regard-spam": BuiltInModel(),
    "regard-toxic": BuiltInModel(second_package=True),
}


def builtin_names() -> list[str]:
    """Return the names of the built-in models that are installed."""
    return [name for name in BUILT_IN if (builtin_folder(name) / "config.json").is_file()]


def builtin_folder(name: str) -> Path:
    """Return the folder of a built-in model, whether or not it is installed."""
    folders = [root / name for root in _roots()]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def is_builtin(path: Path) -> bool:
    """Whether a file belongs to a built-in model."""
    return any(path.resolve().is_relative_to(root.resolve()) for root in _roots())


@cache
def _roots() -> list[Path]:
    spec = find_spec(_SECOND_PACKAGE)
    return [_BUILT_IN, *map(Path, (spec and spec.submodule_search_locations) or ())]
