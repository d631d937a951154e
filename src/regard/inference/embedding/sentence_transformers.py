"""The files of a sentence-transformers folder beside the model: read, and written for models trained here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import json_bytes, read_json, read_json_value

TEXT_POOLINGS = ("cls", "mean", "max")
MODULES = ("Transformer", "Pooling", "Normalize")
# Older files have a boolean per pooling, newer ones a name or a list of names.
SWITCHES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
TYPES = "sentence_transformers.models"


@dataclass(frozen=True)
class SentenceSettings:
    """The settings of a folder; None if it does not specify them."""

    pooling: str | None = None
    max_length: int | None = None
    normalize: bool | None = None


def read_sentence_settings(folder: Path, *, pooling: bool = True) -> SentenceSettings:
    """Read modules.json and 1_Pooling/config.json (if `pooling` is set) and sentence_bert_config.json if they exist.

    With `pooling`, raises InputError if the folder states what Regard does not do and what would change the vectors.
    """
    kinds = _modules(folder / "modules.json", refuse=pooling)
    if pooling:
        _refuse_prompts(folder)
    normalize = "Normalize" in kinds if kinds else None
    return SentenceSettings(_pooling(folder) if pooling else None, _length(folder), normalize)


def sentence_files(*, hidden_size: int, max_length: int, normalize: bool, pooling: str = "mean") -> dict[str, bytes]:
    """The files that make a model folder one of sentence-transformers."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalize else [])]
    switches = {switch: mode == pooling for switch, mode in SWITCHES.items()}
    documents: dict[str, object] = {
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"{TYPES}.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {"word_embedding_dimension": hidden_size, **switches},
    }
    return {name: json_bytes(document) for name, document in documents.items()}


def _pooling(folder: Path) -> str | None:
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    document = read_json(path)
    modes = document.get("pooling_mode")
    if modes is None:
        modes = [
            SWITCHES.get(key, key) for key, on in document.items() if key.startswith("pooling_mode_") and on is True
        ]
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in TEXT_POOLINGS:
        raise InputError(
            f"{path}: it specifies {' and '.join(map(str, modes)) or 'no pooling'}, which Regard does not support; "
            f"choose a pooling: {', '.join(TEXT_POOLINGS)}"
        )
    return str(modes[0])


def _modules(path: Path, *, refuse: bool) -> list[str]:
    """The kinds of a folder's modules. Unsupported ones, such as a dense layer after the pooling, are refused."""
    if not path.is_file():
        return []
    modules = read_json_value(path)
    if not isinstance(modules, list):
        raise InputError(f"{path}: expected a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else "" for module in modules]
    unsupported = [kind or "an unnamed module" for kind in kinds if kind not in MODULES]
    if unsupported and refuse:
        raise InputError(
            f"{path}: unsupported modules: {', '.join(unsupported)}; choose a pooling "
            f"({', '.join(TEXT_POOLINGS)}) to ignore them"
        )
    return kinds


def _refuse_prompts(folder: Path) -> None:
    """Raise InputError if sentence-transformers would truncate the vectors, or put a prompt before every text.

    Prompts that only a caller of that library can choose, and empty ones, change nothing.
    """
    path, pooling = folder / "config_sentence_transformers.json", folder / "1_Pooling" / "config.json"
    document = read_json(path) if path.is_file() else {}
    default, prompts = document.get("default_prompt_name"), document.get("prompts")
    prompt = prompts.get(default) if isinstance(prompts, dict) and isinstance(default, str) else None
    found = []
    if document.get("truncate_dim") is not None:
        found.append(f"truncate_dim is {document['truncate_dim']!r}")
    if default is not None and prompt != "":
        use = "which its prompts do not have" if prompt is None else f"which puts {prompt!r} before every text"
        found.append(f"default_prompt_name is {default!r}, {use}")
        if pooling.is_file() and read_json(pooling).get("include_prompt") is False:
            found.append("include_prompt is false")
    if found:
        raise InputError(
            f"{path}: {'; '.join(found)}: Regard does not follow this yet. To embed without it, choose a pooling "
            f"({', '.join(TEXT_POOLINGS)}), or remove it from the file"
        )


def unused_prompts(folder: Path) -> list[str]:
    """The prompts that sentence-transformers puts before the queries and the documents of a search, unlike Regard."""
    path = folder / "config_sentence_transformers.json"
    prompts = read_json(path).get("prompts") if path.is_file() else None
    if not isinstance(prompts, dict):
        return []
    document = next((name for name in ("document", "passage", "corpus") if name in prompts), "")
    return [str(prompts[name]) for name in ("query", document) if prompts.get(name)]


def _length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    value = read_json(path).get("max_seq_length") if path.is_file() else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: max_seq_length is {value!r}; expected a number of tokens")
    return value
