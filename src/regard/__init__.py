"""Regard: train, use and look inside transformer language models on one's own machine.

Names are resolved when they are first used, so that `import regard` costs nothing and does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from regard.checkpoints.loading import save as save
    from regard.inference.embedding.embedder import Embedder as Embedder
    from regard.inference.load_model import load as load
    from regard.inference.search.build import index as index
    from regard.inference.search.index import open_index as open_index
    from regard.nn.recording import ablate_heads as ablate_heads
    from regard.nn.recording import record as record
    from regard.render.widget import widget as widget
    from regard.training.estimators import Tagger as Tagger
    from regard.training.estimators import TextClassifier as TextClassifier
    from regard.training.recipes.finetuning.fit import fit as fit

_HOMES = {
    "Embedder": "regard.inference.embedding.embedder",
    "Tagger": "regard.training.estimators",
    "TextClassifier": "regard.training.estimators",
    "ablate_heads": "regard.nn.recording",
    "fit": "regard.training.recipes.finetuning.fit",
    "index": "regard.inference.search.build",
    "load": "regard.inference.load_model",
    "open_index": "regard.inference.search.index",
    "record": "regard.nn.recording",
    "save": "regard.checkpoints.loading",
    "widget": "regard.render.widget",
}

__all__ = [
    "Embedder",
    "Tagger",
    "TextClassifier",
    "ablate_heads",
    "fit",
    "index",
    "load",
    "open_index",
    "record",
    "save",
    "widget",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("regard")
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from regard.verbs import FUNCTIONS

    if name not in FUNCTIONS:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; it has {', '.join(__dir__())}")
    from regard.verbs import find
    from regard.verbs.python import python_function

    globals()[name] = python_function(find(FUNCTIONS[name]))
    return globals()[name]


def __dir__() -> list[str]:
    from regard.verbs import FUNCTIONS

    return sorted({*__all__, *FUNCTIONS})
