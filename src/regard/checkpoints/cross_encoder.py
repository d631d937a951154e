"""What sentence-transformers' CrossEncoder writes beside a model: the activation, a prompt, the longest input.

Folders of older versions are those of transformers, with keys in config.json; newer ones have modules.json and
config_sentence_transformers.json. What would change the scores and is not followed is refused by name. Nothing that a
file names is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.files.json_files import read_json, read_json_value

CROSS_ENCODER_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")  # of config.json
_ONE_MODULE = "Transformer"
_CONFIG, _MODULE_CONFIG, _MODULES = "config_sentence_transformers.json", "sentence_bert_config.json", "modules.json"
# Keys that do not change scores in float32, and the values of others that change nothing.
_HARMLESS = ("__version__", "version", "keep_in_fp32_modules")
_NEUTRAL: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    _CONFIG: {"model_type": ("CrossEncoder",)},
    _MODULE_CONFIG: {
        "transformer_task": ("sequence-classification",),
        "module_output_name": ("scores",),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "logits"}},),
        "do_lower_case": (False,),
    },
}


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The `activation` is the name of a class of torch.nn in lower case, if the folder states one. The `prompt` comes
    before the first text of a pair."""

    activation: str | None = None
    prompt: str = ""
    max_length: int | None = None


def read_cross_encoder(folder: Path) -> CrossEncoderSettings:
    """The settings of a folder; InputError for what Regard does not do."""
    config_path, own_path = folder / "config.json", folder / _CONFIG
    config = read_json(config_path) if config_path.is_file() else {}
    found = config.get(CROSS_ENCODER_KEYS[0])
    older: Mapping[str, Any] = found if isinstance(found, dict) else {}
    _refuse_others(config_path, older, ("activation_fn",))
    path, activation = config_path, older.get("activation_fn", config.get(CROSS_ENCODER_KEYS[1]))
    own = read_json(own_path) if own_path.is_file() else {}
    if own.get("model_type") != "CrossEncoder":  # written by a library for vectors, whose settings are others
        return CrossEncoderSettings(_activation(path, activation))
    _refuse_others(own_path, own, ("activation_fn", "default_prompt_name", "prompts"))
    _refuse_modules(folder / _MODULES)
    if own.get("activation_fn") is not None:
        path, activation = own_path, own["activation_fn"]
    return CrossEncoderSettings(_activation(path, activation), _prompt(own_path, own), _max_length(folder))


def cross_encoder_files(folder: Path) -> dict[str, bytes]:
    """The files of a CrossEncoder beside config.json, for a folder that its model is saved to."""
    own = folder / _CONFIG
    if not own.is_file() or read_json(own).get("model_type") != "CrossEncoder":
        return {}
    paths = (folder / name for name in (_CONFIG, _MODULE_CONFIG, _MODULES))
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def _activation(path: Path, name: object) -> str | None:
    if name is None:
        return None
    module, _, kind = str(name).rpartition(".")
    if module != "torch.nn" and not module.startswith("torch.nn.modules."):
        raise InputError(f"{path}: the activation is {name!r}; expected a class of torch.nn, such as torch.nn.Sigmoid")
    return kind.lower()


def _prompt(path: Path, document: Mapping[str, Any]) -> str:
    """The prompt that is used unless a caller names another one."""
    name, prompts = document.get("default_prompt_name"), document.get("prompts") or {}
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        raise InputError(f"{path}: default_prompt_name is {name!r}, which its prompts do not have; correct it there")
    return str(prompts[name])


def _max_length(folder: Path) -> int | None:
    path = folder / _MODULE_CONFIG
    document = read_json(path) if path.is_file() else {}
    _refuse_others(path, document, ("max_seq_length",))
    value = document.get("max_seq_length")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InputError(f"{path}: max_seq_length is {value!r}; expected a number of tokens")
    return value


def _refuse_modules(path: Path) -> None:
    modules: Any = read_json_value(path) if path.is_file() else []
    kinds = [str(one.get("type", "")) if isinstance(one, dict) else "" for one in modules] if modules else []
    names = [kind.rpartition(".")[2] or "an unnamed module" for kind in kinds]
    if names not in ([], [_ONE_MODULE]):
        raise InputError(f"{path}: its modules are {', '.join(names)}; Regard scores with one {_ONE_MODULE} only")


def _refuse_others(path: Path, document: Mapping[str, Any], known: Collection[str]) -> None:
    """InputError for a key that is neither known nor harmless, and has a value that may change scores."""
    neutral = _NEUTRAL.get(path.name, {})
    for name, value in document.items():
        if name in known or name in _HARMLESS or value is None or value == {}:
            continue
        if value not in neutral.get(name, ()):
            raise InputError(f"{path}: {name} is {value!r}, which Regard does not follow; remove it if it is idle")
