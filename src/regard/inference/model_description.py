"""What is known of a model before it is loaded: everything that loading checks is checked, without its weights.

Of a model on the hub, only small files are downloaded for this, and the headers of its weights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.inference.model_summary import ModelCapability, summarize_folder, summarize_model
from regard.models.family import can, family_name
from regard.wording import size_text

LICENSE = re.compile(r"\A---\s*\n(?:.*\n)*?license:[ \t]*(\S[^\n]*)\n")
EMBED = "embed: "  # begins what is refused of embedding alone
CARD = 1 << 16  # bytes of a model card that are searched
# The commands that models with these capabilities suit; each model has those of every line that applies.
SPARSE = ("embed", "index", "search")
VECTORS = (*SPARSE, "duplicates", "cluster", "map")
SUITS: tuple[tuple[set[ModelCapability], tuple[str, ...]], ...] = (
    ({"fine-tuned"}, ("predict", "evaluate", "serve")),
    ({"fine-tuned", "text-encoder"}, ("attribute", "faithfulness", "ablate")),
    ({"text-encoder"}, VECTORS),
    ({"sentence-embedding"}, (*VECTORS, "classify")),
    ({"image-text"}, ("similarity",)),
    ({"masked-lm"}, ("fill", "compare")),
    ({"next-sentence"}, ("next",)),
    ({"causal-lm"}, ("next-token", "perplexity", "lens", "logit-attribution", "patch")),
    ({"text-generation"}, ("generate",)),
    ({"translation"}, ("translate",)),
    ({"text-encoder"}, ("look", "heads", "activations")),
    ({"causal-lm"}, ("look", "heads", "activations")),
    ({"image"}, ("look",)),
    ({"text-encoder"}, ("serve", "export")),
    ({"text-generation"}, ("serve",)),
    ({"fine-tuning"}, ("train",)),
)


class ModelDescription(BaseModel):
    """`refused` says what Regard will not do with the model, and why; `checked_weights` whether the names and shapes of
    its tensors were compared with what the model needs, which is not possible for pickles that are still on the hub.

    `size` are the bytes of the weights, `download` those that are not on this machine yet, `dtypes` the numbers of
    stored values by type.
    """

    name: str
    folder: str
    commit: str | None = None
    family: str | None = None
    description: str = ""
    capabilities: list[ModelCapability] = []
    task: str | None = None
    labels: list[str] = []
    num_parameters: int | None = None
    size: int | None = None
    dtypes: dict[str, int] = {}
    download: int | None = 0
    context_length: int | None = None
    modules: list[str] = []
    pooling: str | None = None
    normalize: bool | None = None
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None
    base_model: str | None = None
    license: str | None = None
    suits: list[str] = []
    refused: list[str] = []
    checked_weights: bool = True

    def to_text(self) -> str:
        size = "" if self.size is None else size_text(self.size)
        dtypes = ", ".join(f"{count:,} in {name}" for name, count in self.dtypes.items())
        rows: list[tuple[str, Any]] = [
            ("Folder", self.folder),
            ("Commit", self.commit),
            ("Family", self.family),
            ("Task", self.task),
            ("Labels", ", ".join(self.labels[:20]) + (f" and {len(self.labels) - 20} more" * (len(self.labels) > 20))),
            ("Parameters", None if self.num_parameters is None else f"{self.num_parameters:,}"),
            ("Weights", f"{size} ({dtypes})" if dtypes else size),
            ("To download", size_text(self.download) if self.download else "size unknown" * (self.download is None)),
            ("Context", None if self.context_length is None else f"{self.context_length:,} tokens"),
            ("Modules", ", ".join(self.modules)),
            ("Pooling", self.pooling),
            ("Normalize", "yes" if self.normalize else None),
            *((f"Prompt {name}", repr(text)) for name, text in self.prompts.items()),
            ("Default", self.default_prompt_name),
            ("Adapter of", self.base_model),
            ("License", self.license),
            ("Suits", ", ".join(self.suits)),
        ]
        width = max(len(name) for name, value in rows if value)
        lines = [f"{self.name}: {self.description or 'not known what it suits'}"]
        lines += [f"  {name:<{width}}  {value}" for name, value in rows if value]
        if not self.checked_weights:
            lines.append("The weights are a pickle on the hub: whether they fit is checked when they are loaded.")
        lines += [f"Refused: {reason}" for reason in self.refused]
        return "\n".join(lines)


def describe_model(name: str) -> ModelDescription:
    """Describe a model by its name or folder. InputError if there is none; what else is wrong with it is `refused`."""
    import torch

    from regard.checkpoints.files import ADAPTER, outlines_only
    from regard.checkpoints.hub import model_files, remote_weights
    from regard.checkpoints.loading import find_folder
    from regard.checkpoints.peft import read_record
    from regard.inference.load_model import load_model
    from regard.inference.search.maxsim import is_multi_vector
    from regard.text.tokenizer_folder import EXPECTED

    folder = find_folder(name, weights=False)
    adapter = read_record(folder) if folder.is_dir() else None
    source = folder if adapter is None else adapter.base
    remote = remote_weights(source)
    about: dict[str, Any] = {"name": name, "folder": str(folder), "license": _license(folder)}
    origin = folder if adapter is None else adapter.folder
    if origin.parent.name == "snapshots":
        about["commit"] = origin.name
    if adapter is not None:
        about["base_model"] = read_json(adapter.folder / ADAPTER)["base_model_name_or_path"]
    if remote is None:
        files = [source / file for file in model_files(source)] if source.is_dir() else [source]
        about["size"] = sum(file.stat().st_size for file in files if file.suffix in (".safetensors", ".bin", ".gguf"))
    else:
        sizes = list(remote.files.values())
        about["size"] = about["download"] = None if None in sizes else sum(size for size in sizes if size is not None)
    outlines = {} if remote is None else remote.outlines
    refused: list[str] = []
    if outlines is None:  # nothing but the settings is known
        summary = summarize_folder(str(folder))
        about["checked_weights"] = False
        loaded = None
        try:
            _check_config(folder)
        except InputError as error:
            refused.append(str(error))
    else:
        with outlines_only(outlines):
            try:
                loaded = replace(load_model(folder, device="meta"), name=name)
                summary = summarize_model(loaded)
            except InputError as error:
                loaded, summary = None, summarize_folder(str(folder))
                refused.append(str(error))
            with suppress(InputError):  # loading has reported it
                about["dtypes"] = _dtypes(source)
    with suppress(InputError):
        about["family"] = str(read_json(folder / "config.json").get("model_type") or "")[:60] or None
    if loaded is not None:
        about |= _describe_loaded(loaded)
        if loaded.tokenizer is None and not can(loaded.model, "image"):
            refused.append(f"texts: {folder} has no tokenizer; expected {EXPECTED}")
    if folder.is_dir():
        with outlines_only(outlines or {}), torch.device("meta"):
            about |= _describe_sentence_files(folder, refused, whole=outlines is not None)
    capabilities = summary.capabilities or []
    about |= summary.model_dump(include={"description", "task", "num_parameters"})
    if folder.is_dir() and is_multi_vector(folder):
        about["description"] = "Reranks the texts of a search by MaxSim: search --rerank."
    if loaded is not None or not refused:
        about["suits"] = _suits(loaded, folder, capabilities, refused)
    return ModelDescription(**about, capabilities=capabilities, refused=refused)


def _suits(loaded: Any, folder: Path, capabilities: Collection[ModelCapability], refused: Collection[str]) -> list[str]:
    """The commands that a model suits."""
    from regard.inference.embedding.sparse import is_sparse_encoder
    from regard.inference.reranking import Reranker

    without: tuple[str, ...] = ()
    if any(reason.startswith(EMBED) for reason in refused):
        without = (*VECTORS, "classify", *(() if "fine-tuned" in capabilities else ("export",)))
    elif folder.is_dir() and is_sparse_encoder(folder):
        without = tuple({*VECTORS, "classify"} - {*SPARSE})
    suits = [verb for needs, verbs in SUITS if needs <= set(capabilities) for verb in verbs if verb not in without]
    if loaded is not None and loaded.fine_tuned is not None:
        with suppress(InputError):
            Reranker(loaded.fine_tuned)
            suits.insert(0, "rerank")
        if any(str(label).casefold() == "entailment" for label in loaded.fine_tuned.labels):
            suits.insert(0, "classify")
        if can(loaded.model, "fine-tuning"):
            suits.append("train")
    return list(dict.fromkeys(suits))


def _check_config(folder: Path) -> None:
    from regard.checkpoints.configs import parse_config

    path = folder / "config.json"
    parse_config(read_json(path), path)


def _dtypes(folder: Path) -> dict[str, int]:
    """The numbers of stored values by type, of a model folder or a GGUF file."""
    from regard.checkpoints.files import read_tensors
    from regard.files.gguf_file import find_gguf, read_gguf

    counts: Counter[str] = Counter()
    if (gguf := find_gguf(folder)) is not None:
        for stored in read_gguf(gguf).tensors.values():
            size = 1
            for length in stored.shape:
                size *= length
            counts[stored.type] += size
    else:
        for tensor in read_tensors(folder).values():
            counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return dict(counts)


def _describe_loaded(loaded: Any) -> dict[str, Any]:
    config = loaded.model.config
    limits = [getattr(config, "max_position_embeddings", None), getattr(loaded.tokenizer, "max_length", None)]
    known = [limit for limit in limits if isinstance(limit, int)]
    labels = [] if loaded.fine_tuned is None else list(loaded.fine_tuned.labels)
    return {"family": family_name(loaded.model), "context_length": min(known, default=None), "labels": labels}


def _describe_sentence_files(folder: Path, refused: list[str], *, whole: bool) -> dict[str, Any]:
    """What the files of sentence-transformers say; what they ask for in vain is added to `refused`.

    Unless `whole`, the weights of modules cannot be read, so the modules are not.
    """
    from regard.inference.embedding.sentence_transformers import read_sentence_settings
    from regard.inference.embedding.sparse import is_sparse_encoder, read_sparse_settings

    if not (folder / "modules.json").is_file():
        return {}
    try:
        if is_sparse_encoder(folder):
            sparse = read_sparse_settings(folder)
            return {"modules": ["SpladePooling"], "pooling": sparse.pooling}
        settings = read_sentence_settings(folder, pooling=whole)
    except InputError as error:
        refused.append(f"{EMBED}{error}")
        return {}
    length = {"context_length": settings.max_length} if settings.max_length else {}
    return length | {
        "modules": [type(module).__name__ for module in settings.modules],
        "pooling": settings.pooling,
        "normalize": settings.normalize,
        "prompts": dict(settings.prompts),
        "default_prompt_name": settings.default_prompt_name,
    }


def _license(folder: Path) -> str | None:
    """The license that the head of the model card states."""
    path = folder / "README.md"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(CARD)
    found = LICENSE.match(head.partition("\n---")[0] + "\n")
    return found[1].strip(" \"'")[:100] if found else None
