"""What a sentence-transformers folder says of its own use: the pooling, and how long a text may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json, read_json_value

__all__ = ["SentenceSettings", "read_sentence_settings"]

POOLINGS = ("cls", "mean", "max")
MODULES = ("Transformer", "Pooling", "Normalize")
# Older files have a switch for each pooling, newer ones the name of one or a list of names.
SWITCHES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


@dataclass(frozen=True)
class SentenceSettings:
    """None where the folder says nothing."""

    pooling: str | None = None
    max_length: int | None = None


def read_sentence_settings(folder: Path, *, pooling: bool = True) -> SentenceSettings:
    """Read 1_Pooling/config.json (if `pooling` is wanted) and sentence_bert_config.json where they are."""
    return SentenceSettings(_pooling(folder) if pooling else None, _length(folder))


def _pooling(folder: Path) -> str | None:
    _refuse_other_modules(folder / "modules.json")
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    document = read_json(path)
    named = document.get("pooling_mode")
    if named is None:
        named = [
            SWITCHES.get(key, key) for key, on in document.items() if key.startswith("pooling_mode_") and on is True
        ]
    modes = named if isinstance(named, list) else [named]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(
            f"{path}: it asks for {' and '.join(map(str, modes)) or 'no pooling'}, which Regard does not do; "
            f"choose a pooling yourself: {', '.join(POOLINGS)}"
        )
    return str(modes[0])


def _refuse_other_modules(path: Path) -> None:
    """A dense layer behind the pooling, say, would be left out without a word."""
    modules = read_json_value(path) if path.is_file() else []
    if not isinstance(modules, list):
        raise InputError(f"{path}: expected a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else "" for module in modules]
    strange = [kind or "an unnamed one" for kind in kinds if kind not in MODULES]
    if strange:
        raise InputError(
            f"{path}: it has a module that Regard does not do: {', '.join(strange)}; choose a pooling yourself "
            f"({', '.join(POOLINGS)}) to go on without"
        )


def _length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    value = read_json(path).get("max_seq_length") if path.is_file() else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: max_seq_length is {value!r}; expected a number of tokens")
    return value
