"""Regard: train, use and look inside transformer language models on one's own machine.

Names are resolved when they are first used, so that `import regard` costs nothing and does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

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

__all__ = [*_HOMES]


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
