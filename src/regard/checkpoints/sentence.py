"""Reads the pooling and the maximum length from a sentence-transformers folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json, read_json_value

POOLINGS = ("cls", "mean", "max")
MODULES = ("Transformer", "Pooling", "Normalize")
# Older files have a boolean per pooling, newer ones a name or a list of names.
SWITCHES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


@dataclass(frozen=True)
class SentenceSettings:
    """The settings of a folder; None if it does not specify them."""

    pooling: str | None = None
    max_length: int | None = None


def read_sentence_settings(folder: Path, *, pooling: bool = True) -> SentenceSettings:
    """Read 1_Pooling/config.json (if `pooling` is set) and sentence_bert_config.json if they exist."""
    return SentenceSettings(_pooling(folder) if pooling else None, _length(folder))


def _pooling(folder: Path) -> str | None:
    _refuse_other_modules(folder / "modules.json")
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
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(
            f"{path}: it specifies {' and '.join(map(str, modes)) or 'no pooling'}, which Regard does not support; "
            f"choose a pooling: {', '.join(POOLINGS)}"
        )
    return str(modes[0])


def _refuse_other_modules(path: Path) -> None:
    """Refuse unsupported modules, such as a dense layer after the pooling, which would be ignored silently."""
    modules = read_json_value(path) if path.is_file() else []
    if not isinstance(modules, list):
        raise InputError(f"{path}: expected a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else "" for module in modules]
    unsupported = [kind or "an unnamed module" for kind in kinds if kind not in MODULES]
    if unsupported:
        raise InputError(
            f"{path}: unsupported modules: {', '.join(unsupported)}; choose a pooling "
            f"({', '.join(POOLINGS)}) to ignore them"
        )


def _length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    value = read_json(path).get("max_seq_length") if path.is_file() else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: max_seq_length is {value!r}; expected a number of tokens")
    return value
