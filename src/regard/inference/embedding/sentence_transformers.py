"""The files of a sentence-transformers folder beside the model: read, and written for models trained here.

`modules.json` lists the modules and their folders, `sentence_bert_config.json` says how texts are read,
`config_sentence_transformers.json` has the prompts. Old and new versions of the files are read. What a file asks for is
followed, or refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save as save_tensors

from regard.checkpoints.module_folders import (
    HARMLESS_MODEL,
    MODEL_CONFIG,
    MODULES,
    TEXT_CONFIGS,
    ConfigKeys,
    Module,
    model_type,
    read_modules,
)
from regard.checkpoints.static_embedding import is_model2vec
from regard.errors import InputError, suggest
from regard.files.json_files import json_bytes, read_json
from regard.inference.embedding.modules import POOL, READERS, Normalize, VectorModule, read_module
from regard.nn.pooling import POOLINGS

# Older files have a boolean per pooling, in this order of their vectors; newer ones a name or a list of names.
SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
HIDDEN = "last_hidden_state"
TYPES = "sentence_transformers.models"
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# The prompts of the two sides of a search, in the order in which encode_query and encode_document look for them.
TASK_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
# Keys that change no vector: versions, what only training, other modalities or padding read, and how the weights are
# loaded, which is Regard's own affair.
HARMLESS_TEXT = ("unpad_inputs",)
HARMLESS_POOLING = ("word_embedding_dimension", "embedding_dimension")
HARMLESS_ARGUMENTS = (
    *("trust_remote_code", "torch_dtype", "dtype", "attn_implementation", "use_cache", "use_fast", "padding_side"),
    *("add_pooling_layer", "low_cpu_mem_usage", "device_map", "use_safetensors", "unpad_inputs"),
)
ARGUMENTS = (("model_args", "model_kwargs"), ("tokenizer_args", "processor_kwargs"), ("config_args", "config_kwargs"))
TEXT_MODALITIES = tuple({"method": "forward", "method_output_name": name} for name in (HIDDEN, [HIDDEN]))
SPARSE = "SparseEncoder"  # the model_type of folders that `sparse` reads
Task = Literal["query", "document"]


@dataclass(frozen=True)
class SentenceSettings:
    """The settings of a folder; None if it does not specify them.

    `pooling` joins several with "+". `modules` follow it; a last one that normalizes is `normalize` instead, unless the
    vectors are truncated after it.
    """

    pooling: str | None = None
    max_length: int | None = None
    normalize: bool | None = None
    include_prompt: bool = True
    modules: tuple[VectorModule, ...] = ()
    truncate_dim: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    do_lower_case: bool = False

    def of_texts(self) -> SentenceSettings:
        """What concerns the texts alone, for another pooling than that of the folder."""
        return replace(
            self, pooling=None, normalize=None, include_prompt=True, modules=(), truncate_dim=None, similarity="cosine"
        )

    def find_prompt(self, prompt: str | None = None, prompt_name: str | None = None, task: Task | None = None) -> str:
        """What is put before every text: `prompt`, the one with a name, that of a side of a search, or the default."""
        if prompt is not None:
            if prompt_name is not None:
                raise InputError(f"a prompt and the name of one ({prompt_name!r}) are given; expected one of them")
            if not isinstance(prompt, str):
                raise InputError(f"prompt is {prompt!r}; expected a text")
            return prompt
        if prompt_name is not None:
            if prompt_name not in self.prompts:
                known = suggest(str(prompt_name), self.prompts) if self.prompts else "its folder states no prompts"
                raise InputError(f"this model has no prompt {prompt_name!r}; {known}. Or give the text with prompt")
            return self.prompts[prompt_name]
        if task is not None:  # which never falls back to the default
            return next((self.prompts[name] for name in TASK_PROMPTS[task] if name in self.prompts), "")
        return self.prompts.get(self.default_prompt_name or "", "")

    def width(self, pooled: int) -> int:
        """The width of the vectors, if those of the pooling are `pooled` wide."""
        for module in self.modules:
            if module.input_width not in (None, pooled):
                raise InputError(
                    f"the module {type(module).__name__} expects vectors of {module.input_width} numbers, found "
                    f"{pooled}; choose a pooling to embed without the modules of the folder"
                )
            pooled = module.width or pooled
        return min(pooled, self.truncate_dim or pooled)

    @property
    def digest(self) -> str:
        """A hash of everything that makes other vectors than the pooling alone; empty if there is no such thing."""
        if self.include_prompt and self.truncate_dim is None and not self.modules:
            return ""
        names = [[type(module).__name__, module.config] for module in self.modules]
        digest = hashlib.sha256(json_bytes([self.pooling, self.include_prompt, self.truncate_dim, names]))
        for module in self.modules:
            digest.update(save_tensors(module.state_dict()))
        return digest.hexdigest()


def read_sentence_settings(folder: Path, *, pooling: bool = True) -> SentenceSettings:
    """Read the files of a folder that exist; without `pooling` those alone that concern the texts.

    Raises InputError for what would change the vectors and is not supported.
    """
    path = folder / MODEL_CONFIG
    if model_type(folder) == SPARSE:
        raise InputError(f"{path}: model_type is {SPARSE!r}; embed with kind sparse, and index with sparse (--sparse)")
    listed = read_modules(folder)
    first = replace(listed[0], kind="Transformer") if listed else Module("Transformer", "", folder / MODULES)
    texts = _texts(first, pooling=pooling)
    settings = SentenceSettings(**texts, **_model(path, pooling=pooling))
    if not pooling:
        return settings.of_texts()
    if not listed and is_model2vec(folder):
        return replace(settings, normalize=bool(read_json(folder / "config.json").get("normalize")))
    if not listed:
        path = folder / "1_Pooling" / "config.json"
        return replace(settings, **_pooling(ConfigKeys(path, advice=POOL))) if path.is_file() else settings
    static = listed[0].kind == "StaticEmbedding"  # whose vectors are those of texts
    expected = [("StaticEmbedding",)] if static else [("Transformer",), ("Pooling",)]
    allowed = [*expected, *([tuple(READERS)] * len(listed))]
    unknown = [module.kind for module, kinds in zip(listed, allowed, strict=False) if module.kind not in kinds]
    if unknown:
        raise InputError(
            f"{folder / MODULES}: unsupported modules: {', '.join(unknown)}; expected StaticEmbedding, or "
            f"Transformer and Pooling, and then any of {', '.join(READERS)}. Choose a pooling, such as mean, to embed "
            "without its modules"
        )
    if not static and len(listed) > 1:
        settings = replace(settings, **_pooling(listed[1].keys(advice=POOL)))
    following = map(read_module, listed[len(expected) :])
    modules = [module for module in following if module is not None]
    normalize = False
    while modules and isinstance(modules[-1], Normalize) and settings.truncate_dim is None:
        normalize = bool(modules.pop())
    return replace(settings, modules=tuple(modules), normalize=normalize)


def _pooling(keys: ConfigKeys) -> dict[str, Any]:
    switches = [mode for key, mode in SWITCHES.items() if keys.take(key) is True]
    modes = keys.take("pooling_mode", switches)
    modes = list(modes) if isinstance(modes, list) else [modes]
    include_prompt = bool(keys.take("include_prompt", True))
    if not modes or not all(mode in POOLINGS for mode in modes):
        found = " and ".join(map(str, modes)) or " and ".join(map(str, keys.rest)) or "no pooling"
        raise InputError(
            f"{keys.path}: it specifies {found}; expected one or several of {', '.join(POOLINGS)}. Or choose a pooling"
        )
    keys.finish(HARMLESS_POOLING)
    return {"pooling": "+".join(modes), "include_prompt": include_prompt}


def _model(path: Path, *, pooling: bool) -> dict[str, Any]:
    """The settings in config_sentence_transformers.json; without `pooling` the prompts alone."""
    keys = ConfigKeys(path, advice=POOL)
    if not pooling:
        keys.keep("prompts", "default_prompt_name")
    keys.expect("model_type", "SentenceTransformer")
    prompts, default = keys.take_prompts(*TASK_PROMPTS)
    similarity = keys.take("similarity_fn_name") or "cosine"
    if similarity not in SIMILARITIES:
        raise keys.refusal(f"similarity_fn_name is {similarity!r}", f"expected one of {', '.join(SIMILARITIES)}")
    truncate_dim = keys.take_count("truncate_dim")
    keys.finish(HARMLESS_MODEL)
    return {
        "prompts": prompts,
        "default_prompt_name": default,
        "similarity": similarity,
        "truncate_dim": truncate_dim,
    }


def _texts(module: Module, *, pooling: bool) -> dict[str, Any]:
    """How a Transformer reads texts; without `pooling` the length and the lower case alone."""
    keys = module.keys(advice=POOL)
    if not pooling:
        keys.keep("max_seq_length", "do_lower_case")
    length, lower = keys.take_count("max_seq_length"), keys.take("do_lower_case", False)
    if not isinstance(lower, bool):
        raise InputError(f"{keys.path}: do_lower_case is {lower!r}; expected true or false")
    keys.expect("transformer_task", "feature-extraction")
    keys.expect("module_output_name", "token_embeddings")
    modalities = keys.take("modality_config") or {"text": TEXT_MODALITIES[0]}
    # Other entries than that of texts are for images and sounds; with a message, texts are read as a chat.
    if not isinstance(modalities, dict) or "message" in modalities or modalities.get("text") not in TEXT_MODALITIES:
        raise keys.refusal(f"modality_config is {modalities!r}", "expected texts that are read without a chat template")
    for old, new in ARGUMENTS:
        arguments = ConfigKeys(keys.path, {**(keys.take(old) or {}), **(keys.take(new) or {})}, advice=POOL)
        if old == "tokenizer_args":
            length = arguments.take_count("model_max_length") or length
        arguments.finish(HARMLESS_ARGUMENTS)
    keys.finish(HARMLESS_TEXT)
    return {"max_length": length, "do_lower_case": lower}


def sentence_files(
    *,
    hidden_size: int,
    max_length: int | None,
    normalize: bool,
    pooling: str = "mean",
    settings: SentenceSettings | None = None,
) -> dict[str, bytes]:
    """The files that make a model folder one of sentence-transformers; `settings` are those besides the arguments."""
    settings = settings or SentenceSettings()
    listed: list[VectorModule] = [*settings.modules, *([Normalize()] if normalize else [])]
    names = ["Transformer", "Pooling", *(type(module).__name__ for module in listed)]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(names) if index)]
    modes = pooling.split("+")
    # Several are written as a list, which has their order; one as old versions read it, too.
    stated: dict[str, object] = {switch: mode == pooling for switch, mode in SWITCHES.items()}
    if len(modes) > 1:
        stated = {"pooling_mode": modes}
    documents: dict[str, object] = {
        MODULES: [
            {"idx": index, "name": str(index), "path": path, "type": f"{TYPES}.{kind}"}
            for index, (path, kind) in enumerate(zip(paths, names, strict=True))
        ],
        TEXT_CONFIGS[0]: {"max_seq_length": max_length, "do_lower_case": False},
        MODEL_CONFIG: {
            "prompts": dict(settings.prompts),
            "default_prompt_name": settings.default_prompt_name,
            "similarity_fn_name": settings.similarity,
            **({} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}),
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden_size,
            **stated,
            **({} if settings.include_prompt else {"include_prompt": False}),
        },
    }
    files = {name: json_bytes(document) for name, document in documents.items()}
    for path, module in zip(paths[2:], listed, strict=True):
        if module.config:
            files[f"{path}/config.json"] = json_bytes(module.config)
            files[f"{path}/model.safetensors"] = save_tensors(module.state_dict())
    return files
