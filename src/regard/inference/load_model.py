"""Load any kind of model by name: pretrained, fine-tuned or a translator.

The code of tasks and translators is imported only for folders that need it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.checkpoints import loading
from regard.checkpoints.configs import has_task_head, is_translator
from regard.checkpoints.loaded_model import LoadedModel
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.fine_tuned_model import FineTunedModel


def load(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    revision: str = "main",
    offline: bool | None = None,
) -> tuple[nn.Module, Tokenizer | None] | FineTunedModel:
    """Load a model in evaluation mode, from a folder, a GGUF file, a built-in name or a Hugging Face hub name.

    A pretrained model is returned with its tokenizer, which is None if the model has none, such as a Vision
    Transformer. A folder that `regard train` wrote, or a published model with a task head such as
    BertForSequenceClassification, gives a `FineTunedModel`: the model with its head, with `.predict`, `.evaluate`,
    `.labels` and `.save`. Both unpack to a model without a task head and a tokenizer. Weights are converted to `dtype`;
    with torch.int8, the matrices of a decoder stay in 8 bits on a CPU.
    """
    folder = loading.find_folder(name_or_path, revision=revision, offline=offline)
    if has_task_head(folder):
        from regard.tasks.fine_tuned_model import load_fine_tuned

        fine_tuned = load_fine_tuned(folder, device=device)
        fine_tuned.model.to(dtype)
        return fine_tuned
    return loading.load(folder, device=device, dtype=dtype)


def load_model(
    name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu", precision: str = "fp32"
) -> LoadedModel:
    """A folder, a GGUF file, a built-in name or a Hugging Face hub name.

    For a fine-tuned model, `model` is the encoder. With precision int8, the weights of a decoder are in 8 bits.
    """
    name, folder = os.fspath(name_or_path), loading.find_folder(name_or_path)
    if is_translator(folder):
        from regard.inference.translation.translator import load_translator

        translator = load_translator(folder, device=device)
        return LoadedModel(name, translator.model, translator.subwords, translator=translator, folder=folder)
    if has_task_head(folder):
        from regard.tasks.fine_tuned_model import load_fine_tuned

        fine_tuned = load_fine_tuned(folder, device=device)
        return LoadedModel(name, fine_tuned.model.encoder, fine_tuned.tokenizer, fine_tuned, folder=folder)
    dtype = torch.int8 if precision == "int8" else torch.float32
    return LoadedModel(name, *loading.load(folder, device=device, dtype=dtype), folder=folder)
