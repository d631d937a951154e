"""Loads and saves translators: config.json, weights, tokenizers, and translate.json with the alignment heads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from regard.checkpoints import loading
from regard.checkpoints.load import read_model, write_model
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.files.json_files import json_bytes, read_json
from regard.inference.translation.alignment import AlignmentHeads, default_alignment_heads
from regard.inference.translation.model import as_translation_model, vocab_sizes
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import Translator

TRANSLATE = "translate.json"


def save_translator(translator: Translator, folder: Path, *, files: Mapping[str, bytes] | None = None) -> None:
    """Write a folder atomically, with additional `files`."""
    document = {
        "task": "translate",
        "joint": translator.subwords.joint,
        "alignment": translator.alignment_heads.document(),
    }
    contents = {**translator.subwords.files(), **(files or {}), TRANSLATE: json_bytes(document)}
    write_model(translator.model, folder, files=contents)


def require_translator(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder of a translator; raises InputError for other models."""
    folder = loading.find_folder(name_or_path)
    if not (folder / TRANSLATE).is_file():
        raise InputError(f"{folder}: no {TRANSLATE}; expected a folder that `regard train translate` wrote")
    return folder


def translator_of(loaded: LoadedModel) -> Translator:
    """The translator of a loaded model; of a model and its subwords, one with the default alignment heads."""
    if loaded.translator is not None:
        found: Translator = loaded.translator
        return found
    if not isinstance(loaded.tokenizer, Subwords):
        raise InputError(f"{loaded.name} does not translate; expected a folder that `regard train translate` wrote")
    model = as_translation_model(loaded.model)
    return Translator(model, loaded.tokenizer, default_alignment_heads(model))


def load_translator(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> Translator:
    """Load a folder written by `regard train translate`, or a built-in translator."""
    folder = require_translator(name_or_path)
    alignment_heads = _read_alignment_heads(folder / TRANSLATE)
    model, subwords = as_translation_model(read_model(folder)), Subwords.open(folder)
    for side, rows, size in zip(
        ("source", "target"), vocab_sizes(model), (subwords.source.size, subwords.target.size), strict=True
    ):
        if rows != size:
            raise InputError(
                f"{folder}: the model has {rows:,} {side} tokens and the tokenizer {size:,}; copy the folder again"
            )
    return Translator(model.to(device).eval(), subwords, alignment_heads)


def _read_alignment_heads(path: Path) -> AlignmentHeads:
    alignment = read_json(path).get("alignment")
    if isinstance(alignment, dict):
        layer, heads = alignment.get("layer"), alignment.get("heads")
        if type(layer) is int and isinstance(heads, list) and heads and all(type(head) is int for head in heads):
            return AlignmentHeads(layer, tuple(heads))
    raise InputError(
        f'{path}: alignment is {str(alignment)[:60]}; expected {{"layer": 1, "heads": [0, 1]}}: copy the folder again, '
        "or train again"
    )
