"""What a sentence-transformers folder says of its own use: pooling, length, and whether vectors are normalised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.weights.files import read_json

__all__ = ["SentenceSettings", "read_settings"]

POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


@dataclass(frozen=True)
class SentenceSettings:
    """None where the folder says nothing."""

    pooling: str | None = None
    max_length: int | None = None


def read_settings(folder: Path, *, pooling: bool = True) -> SentenceSettings:
    """Read 1_Pooling/config.json (if `pooling` is wanted) and sentence_bert_config.json where they are."""
    return SentenceSettings(_pooling(folder) if pooling else None, _length(folder))


def _pooling(folder: Path) -> str | None:
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    document = read_json(path)
    modes = {key for key, value in document.items() if value is True and key.startswith("pooling_mode")}
    if isinstance(named := document.get("pooling_mode"), str):  # newer files name it
        modes = {"pooling_mode_cls_token" if named == "cls" else f"pooling_mode_{named}_tokens"}
    if len(modes) != 1 or not modes <= set(POOLINGS):
        raise InputError(
            f"{path}: it asks for {', '.join(sorted(modes)) or 'no pooling'}, which Regard does not do; "
            f"choose a pooling yourself: {', '.join(POOLINGS.values())}"
        )
    return POOLINGS[modes.pop()]


def _length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    value = read_json(path).get("max_seq_length") if path.is_file() else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: max_seq_length is {value!r}; expected a number of tokens")
    return value
