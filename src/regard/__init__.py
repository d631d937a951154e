"""Regard: train, use and look inside transformer language models on one's own machine.

Names are resolved when they are first used, so that `import regard` costs nothing and does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from regard.estimators import Tagger as Tagger
    from regard.estimators import TextClassifier as TextClassifier
    from regard.features import Embedder as Embedder
    from regard.finetune.evaluate import evaluate as evaluate
    from regard.finetune.run import fit as fit
    from regard.loading import load as load
    from regard.loading import save as save
    from regard.nn.recording import knock_out as knock_out
    from regard.nn.recording import record as record

_HOMES = {
    "Embedder": "regard.features",
    "Tagger": "regard.estimators",
    "TextClassifier": "regard.estimators",
    "evaluate": "regard.finetune.evaluate",
    "fit": "regard.finetune.run",
    "knock_out": "regard.nn.recording",
    "load": "regard.loading",
    "record": "regard.nn.recording",
    "save": "regard.loading",
}

__all__ = ["Embedder", "Tagger", "TextClassifier", "evaluate", "fit", "knock_out", "load", "record", "save"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("regard")
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
