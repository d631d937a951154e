"""Loads any model that can be inspected: pretrained, fine-tuned or translating."""

from __future__ import annotations

import os

import torch
from torch import nn

from regard.checkpoints import loading
from regard.inference import translation as translate
from regard.inference.translation.folder import TRANSLATE
from regard.interpret.attention.recording import TextTokenizer
from regard.tasks.folder import is_solved, read_task

__all__ = ["load_model"]


def load_model(
    name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> tuple[nn.Module, TextTokenizer]:
    """Load a model and its tokenizer from a folder, a built-in name or a Hugging Face hub name.

    A translator comes with its `Subwords`; of a fine-tuned model the encoder is returned, without the task head.
    """
    folder = loading.find(name_or_path)
    if (folder / TRANSLATE).is_file():
        translator = translate.load(folder, device=device)
        return translator.model, translator.subwords
    if is_solved(folder):
        solved = read_task(folder, device=device)
        return solved.model.encoder, solved.tokenizer
    return loading.load(folder, device=device)
