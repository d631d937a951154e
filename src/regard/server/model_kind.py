"""What a model is good for, told by its folder before it is loaded. Knows folders and families."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import builtin_folder, builtin_names

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.attention.recording import TextTokenizer

__all__ = ["ModelKind", "infer_kind"]

ModelKind = Literal["reader", "writer", "translator", "tuned", "unknown"]

WRITERS = ("gpt2", "t5")  # families, as their folders name them


def infer_kind(name: str, loaded: tuple[nn.Module, TextTokenizer] | None = None) -> ModelKind:
    """A tuned model has a task, a translator two languages, a writer goes on with a prompt; others read.

    Where no folder has this name, as for a model of the hub, `loaded` tells; without it, it is unknown.
    """
    folder = builtin_folder(name) if name in builtin_names() else Path(os.path.expanduser(name))
    if (folder / "task.json").is_file():
        return "tuned"
    if (folder / "translate.json").is_file():
        return "translator"
    try:
        family = read_json(folder / "config.json")["model_type"]
    except (InputError, KeyError):
        return "unknown" if loaded is None else _kind_of_loaded(*loaded)
    return "writer" if family in WRITERS else "reader"


def _kind_of_loaded(model: nn.Module, reader: TextTokenizer) -> ModelKind:
    from regard.inference.translation.subwords import Subwords
    from regard.models import T5, Gpt

    if isinstance(reader, Subwords):
        return "translator"
    return "writer" if isinstance(model, Gpt | T5) else "reader"
