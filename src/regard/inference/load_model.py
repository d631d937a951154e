"""Load any kind of model by name: pretrained, fine-tuned or a translator."""

from __future__ import annotations

import os

import torch

from regard.checkpoints import loading
from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.translation.translator import TRANSLATE, load_translator
from regard.tasks.fine_tuned_model import is_fine_tuned, load_fine_tuned


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
