"""What sentence-transformers' CrossEncoder writes beside a model: the activation, a prompt, the longest input.

Folders of older versions are those of transformers, with keys in config.json; newer ones have modules.json and
config_sentence_transformers.json. What would change the scores and is not followed is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.checkpoints.module_folders import (
    HARMLESS_MODEL,
    MODEL_CONFIG,
    MODULES,
    TEXT_CONFIGS,
    ConfigKeys,
    Module,
    activation,
    model_type,
    read_modules,
)
from regard.errors import InputError

CROSS_ENCODER = "CrossEncoder"  # the model_type
CROSS_ENCODER_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")  # of config.json
_HARMLESS = (*HARMLESS_MODEL, "version", "keep_in_fp32_modules")  # in float32
_TEXTS = {"text": {"method": "forward", "method_output_name": "logits"}}


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The `activation` is the name of a class of torch.nn in lower case, if the folder states one. The `prompt` comes
    before the first text of a pair."""

    activation: str | None = None
    prompt: str = ""
    max_length: int | None = None


def read_cross_encoder(folder: Path) -> CrossEncoderSettings:
    """The settings of a folder; InputError for what Regard does not do."""
    config = ConfigKeys(folder / "config.json")
    found = config.take(CROSS_ENCODER_KEYS[0])
    older = ConfigKeys(config.path, found if isinstance(found, dict) else {})
    function = _activation(config.path, older.take("activation_fn", config.take(CROSS_ENCODER_KEYS[1])))
    older.finish(_HARMLESS)
    if model_type(folder) != CROSS_ENCODER:  # written by a library for vectors, whose settings are others
        return CrossEncoderSettings(function)
    own = ConfigKeys(folder / MODEL_CONFIG)
    own.expect("model_type", CROSS_ENCODER)
    function = _activation(own.path, own.take("activation_fn")) or function
    prompts, default = own.take_prompts()
    own.finish(_HARMLESS)
    modules = read_modules(folder) or [Module("Transformer", "", folder / MODULES)]
    kinds = [module.kind for module in modules]
    if kinds != ["Transformer"]:
        raise InputError(
            f"{folder / MODULES}: its modules are {', '.join(kinds)}; Regard scores with one Transformer only"
        )
    keys = modules[0].keys()
    keys.expect("transformer_task", "sequence-classification")
    keys.expect("module_output_name", "scores")
    keys.expect("modality_config", _TEXTS)
    keys.expect("do_lower_case", False)
    length = keys.take_count("max_seq_length")
    keys.finish(_HARMLESS)
    return CrossEncoderSettings(function, prompts[default] if default else "", length)


def cross_encoder_files(folder: Path) -> dict[str, bytes]:
    """The files of a CrossEncoder beside config.json, for a folder that its model is saved to."""
    if model_type(folder) != CROSS_ENCODER:
        return {}
    paths = (folder / name for name in (MODEL_CONFIG, *TEXT_CONFIGS, MODULES))
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def _activation(path: Path, name: object) -> str | None:
    try:
        return None if name is None else activation(str(name)).__name__.lower()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
