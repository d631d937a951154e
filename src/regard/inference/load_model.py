"""Load any kind of model by name: pretrained, fine-tuned or a translator."""

from __future__ import annotations

import os

import torch
from torch import nn

from regard.checkpoints import loading
from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.translation.translator import TRANSLATE, load_translator
from regard.tasks.fine_tuned_model import FineTunedModel, is_fine_tuned, load_fine_tuned
from regard.text import Tokenizer


def load(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    revision: str = "main",
    offline: bool | None = None,
) -> tuple[nn.Module, Tokenizer | None] | FineTunedModel:
    """Load a model in evaluation mode, from a folder, a built-in name or a Hugging Face hub name.

    A pretrained model is returned with its tokenizer, which is None if the model has none, such as a Vision
    Transformer. A folder that `regard train` wrote gives a `FineTunedModel`: the model with its head, with `.predict`,
    `.evaluate`, `.labels` and `.save`. Both unpack to a model without a task head and a tokenizer. Weights are
    converted to `dtype`.
    """
    folder = loading.find_folder(name_or_path, revision=revision, offline=offline)
    if is_fine_tuned(folder):
        fine_tuned = load_fine_tuned(folder, device=device)
        fine_tuned.model.to(dtype)
        return fine_tuned
    return loading.load(folder, device=device, dtype=dtype)


def load_model(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> LoadedModel:
    """A folder, a built-in name or a Hugging Face hub name. For a fine-tuned model, `model` is the encoder."""
    name, folder = os.fspath(name_or_path), loading.find_folder(name_or_path)
    if (folder / TRANSLATE).is_file():
        translator = load_translator(folder, device=device)
        return LoadedModel(name, translator.model, translator.subwords, translator=translator, folder=folder)
    if is_fine_tuned(folder):
        fine_tuned = load_fine_tuned(folder, device=device)
        return LoadedModel(name, fine_tuned.model.encoder, fine_tuned.tokenizer, fine_tuned, folder=folder)
    return LoadedModel(name, *loading.load(folder, device=device), folder=folder)
