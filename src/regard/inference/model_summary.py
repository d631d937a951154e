"""What a model can do and suits, from its folder before it is loaded or from the loaded model.

Lists of models, `regard models` and the studio, show it; the page opens views on models by it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import BUILT_IN, builtin_folder, builtin_names
from regard.models.family import Capability, can, families, get_family

if TYPE_CHECKING:
    from torch import nn

    from regard.checkpoints.loaded_model import LoadedModel
    from regard.tasks.task import Task

# The capabilities of its family, that it is fine-tuned for a task, that it was trained for sentence embeddings, or that
# it is an encoder-decoder with post-norm layers, as Figure 1 draws them.
ModelCapability = Capability | Literal["fine-tuned", "sentence-embedding", "post-norm"]
PRETRAINED_ONLY = {"masked-lm", "next-sentence", "text-generation", "fine-tuning"}  # a fine-tuned model has lost these
# What models with these capabilities do; the first that applies.
PURPOSES: tuple[tuple[set[ModelCapability], str], ...] = (
    ({"sentence-embedding"}, "Gives sentence vectors for search, clusters and maps"),
    ({"masked-lm"}, "Fills in blanks and gives word vectors"),
    ({"causal-lm", "text-generation"}, "Continues a text and gives the probability of each token"),
    ({"encoder-decoder", "text-generation"}, "Writes a text in reply to a text"),
    ({"recurrent", "layer-mix"}, "Gives word vectors from LSTM language models in both directions"),
    ({"image-text"}, "Compares images with texts"),
    ({"image"}, "Gives vectors of images; fine-tune it for a task"),
    ({"text-encoder"}, "Gives word vectors"),
    ({"causal-lm"}, "Gives word vectors"),
)


class ModelSummary(BaseModel):
    """`capabilities` is null if they are not known, as for a hub model that is not loaded yet. `description` says in
    one sentence what the model suits. `task` is that of a fine-tuned model. `num_attention_heads` is per layer, 1 for a
    recurrent model with attention, and null without attention."""

    capabilities: list[ModelCapability] | None = None
    description: str = ""
    task: str | None = None
    num_attention_heads: int | None = None
    num_parameters: int | None = None


def summarize_folder(name: str) -> ModelSummary:
    """The summary of a built-in or packaged model, a folder or a GGUF file; an empty one if there is none."""
    from regard.checkpoints.configs import parse_config
    from regard.checkpoints.gguf import read_gguf_config
    from regard.checkpoints.packages import packaged_folder, packaged_names
    from regard.files.gguf_file import find_gguf, read_gguf
    from regard.tasks.fine_tuned_model import is_fine_tuned, read_task

    folder = builtin_folder(name) if name in builtin_names() else Path(os.path.expanduser(name))
    folder = packaged_folder(name) if name in packaged_names() else folder
    try:
        if (gguf := find_gguf(folder)) is not None:
            config, _ = read_gguf_config(read_gguf(gguf))
            return _summary(name, _ordered(get_family(config.family).capabilities, False, None), _outline(config), None)
    except (InputError, ValueError, RuntimeError):
        return ModelSummary()
    fine_tuned = is_fine_tuned(folder)
    path = folder / "config.json"
    try:
        document = read_json(path)
        model_type = str(document["model_type"])
    except (InputError, KeyError):
        return ModelSummary(capabilities=["fine-tuned"] if fine_tuned else None)
    family = families().get(model_type.removeprefix("regard-").replace("_", "-"))
    known = frozenset[Capability]() if family is None else family.capabilities
    model, task = None, None
    try:  # loading reports what is wrong with a folder
        model = _outline(parse_config(document, path))
        task = read_task(folder) if fine_tuned else None
    except (InputError, ValueError, RuntimeError):
        pass
    return _summary(name, _ordered(known, fine_tuned, folder), model, task)


def summarize_model(loaded: LoadedModel) -> ModelSummary:
    fine_tuned = loaded.fine_tuned
    known = {capability for capability in get_args(Capability) if can(loaded.model, capability)}
    capabilities = _ordered(known, fine_tuned is not None, loaded.folder)
    if fine_tuned is None:
        return _summary(loaded.name, capabilities, loaded.model, None)
    return _summary(loaded.name, capabilities, fine_tuned.model, fine_tuned.task)  # with the head


def _outline(config: Any) -> Any:
    """The modules of a model without their weights."""
    import torch

    from regard.checkpoints.loading import SkipInit
    from regard.models.family import build

    with torch.device("meta"), SkipInit():
        return build(config, output_heads=())


def _summary(
    name: str, capabilities: list[ModelCapability], model: nn.Module | None, task: Task[Any] | None
) -> ModelSummary:
    from regard.nn.attention import Attention
    from regard.nn.block import Residual

    modules = [] if model is None else list(model.modules())
    norms = [module.first for module in modules if isinstance(module, Residual)]
    if "encoder-decoder" in capabilities and norms and not norms[0]:
        capabilities = [*capabilities, "post-norm"]
    return ModelSummary(
        capabilities=capabilities,
        description=_describe(name, capabilities, task),
        task=None if task is None else task.name,
        num_attention_heads=next((module.heads for module in modules if isinstance(module, Attention)), None),
        num_parameters=None if model is None else sum(parameter.numel() for parameter in model.parameters()),
    )


def _describe(name: str, capabilities: Collection[ModelCapability], task: Task[Any] | None) -> str:
    languages = BUILT_IN[name].languages if name in BUILT_IN else ()
    if "translation" in capabilities:
        return (
            f"Translates from {languages[0]} into {languages[1]}." if languages else "Translates between two languages."
        )
    purpose = next((text for needs, text in PURPOSES if needs <= set(capabilities)), "")
    if "fine-tuned" in capabilities:  # no task if its folder cannot be used
        purpose = "" if task is None else task.summary
    return f"{purpose}; {', '.join(languages)}." if purpose and languages else f"{purpose}." if purpose else ""


def _ordered(known: Collection[Capability], fine_tuned: bool, folder: Path | None) -> list[ModelCapability]:
    trained: list[ModelCapability] = ["fine-tuned"] if fine_tuned else []
    if folder is not None and (folder / "modules.json").is_file():
        trained.append("sentence-embedding")
    listed = [one for one in get_args(Capability) if one in known and not (trained and one in PRETRAINED_ONLY)]
    return [*trained, *listed]
