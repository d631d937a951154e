"""Folders of PEFT with LoRA: an adapter, whose weights are added to those of the model that `adapter_config.json`
names.

`joined_folder` gives the adapter and its base model as one folder with the files of both except the weights;
`add_adapter` adds B A times a scale to the weights of the base model, under their names in its file, when that folder
is loaded. Other methods of PEFT, and options of LoRA that change the result in another way, are refused by name.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.checkpoints.file_format import format_of
from regard.checkpoints.files import ADAPTER, WEIGHTS, preferred_weights, read_tensors
from regard.checkpoints.hub import SMALL_FILES, model_files
from regard.errors import InputError
from regard.files.checksums import cache_folder, sha256_of
from regard.files.disk import finish_save, replace_folder
from regard.files.file_input import read_file
from regard.files.json_files import json_bytes, read_json
from regard.models.family import family_names

RECORD = "adapter.json"  # in the joined folder: where its weights are
LIMIT = 256 << 20  # bytes of one file, as of a tokenizer
# Settings that do not affect the result, or that the tensors of the file show.
HARMLESS = {
    *("base_model_name_or_path", "revision", "peft_type", "peft_version", "auto_mapping", "task_type"),
    *("inference_mode", "r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform"),
    *("layers_pattern", "modules_to_save", "bias", "lora_dropout", "fan_in_fan_out", "runtime_config"),
    *("megatron_core", "qalora_group_size", "loftq_config", "eva_config", "lora_alpha", "alpha_pattern", "use_rslora"),
    "init_lora_weights",
}
# Initializations that leave the weights of the base model as they are.
INITIALIZATIONS = (None, True, False, "gaussian", "eva", "orthogonal")
HEADS = {  # the classes of transformers by PEFT's task type
    "SEQ_CLS": "SequenceClassification",
    "TOKEN_CLS": "TokenClassification",
    "QUESTION_ANS": "QuestionAnswering",
}
BEGIN = "base_model.model."
PATTERN = re.compile(r"[\w.^$|()\[\]\\-]{1,200}", re.ASCII)  # no repetitions, which could take forever
MATRICES = {"A.weight": "A", "B.weight": "B", "embedding_A": "A", "embedding_B": "B"}  # after "lora_"


@dataclass(frozen=True)
class Adapter:
    """The folders of an adapter and its base model."""

    folder: Path
    base: Path


def read_record(folder: Path) -> Adapter | None:
    """Return where the weights of a joined folder are; None for other folders."""
    path = folder / RECORD
    if not path.is_file() or folder.parent != _joined_folders():  # such a file in another folder means nothing
        return None
    record = read_json(path)
    return Adapter(Path(str(record["adapter"])), Path(str(record["base"])))


def joined_folder(folder: Path, find: Callable[..., Path]) -> Path:
    """Return a folder with the files of an adapter and, where it has none, those of its base model.

    `find(name, revision=)` returns the folder of a model. The folder is in the cache, under a name that changes with
    the contents of the files and the weights of both.
    """
    path = folder / ADAPTER
    config = _read_config(path)
    base = _find_base(path, config, find)
    files = {**_small_files(base), **_small_files(folder)}
    files.pop(ADAPTER)
    files["config.json"] = json_bytes(_with_head(read_json(base / "config.json"), config, folder))
    weights = [base / name for name in sorted(WEIGHTS) if (base / name).is_file()]
    record = {
        "adapter": str(folder.resolve()),
        "base": str(base.resolve()),
        "adapter_sha256": sha256_of(folder / _weights(folder)),
        "base_weights": [[one.name, one.stat().st_size, one.stat().st_mtime_ns] for one in weights],
    }
    files[RECORD] = json_bytes(record)
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:32]
    joined = _joined_folders() / digest
    finish_save(joined)
    if not (joined / RECORD).is_file():
        with replace_folder(joined) as staging:
            for name, data in files.items():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).write_bytes(data)
    return joined


def add_adapter(
    tensors: Mapping[str, Tensor],
    adapter: Adapter,
    *,
    prefix: str,
    transposed: Collection[str],
    shared: Collection[str],
) -> dict[str, Tensor]:
    """Return the tensors of the base model with those of the adapter added or put in their place.

    `prefix` precedes the names of the base model and may be missing on either side; `transposed` are the matrices that
    the file stores transposed, `shared` the tensors that the model uses a second time.
    """
    path = adapter.folder / _weights(adapter.folder)
    config = _read_config(adapter.folder / ADAPTER)
    result = dict(tensors)
    pairs: dict[tuple[str, bool], dict[str, Tensor]] = {}
    saved = _strings(config, "modules_to_save", path)

    def find(name: str) -> str | None:
        """The name in the file of the base model."""
        choices = (name, prefix + name, name.removeprefix(prefix))
        return next((one for one in choices if one in tensors), None)

    for key, tensor in read_tensors(adapter.folder).items():
        name = _plain_name(key, path)
        module, _, matrix = name.partition(".lora_")
        if matrix in MATRICES and tensor.ndim == 2:
            pairs.setdefault((module, matrix.startswith("embedding")), {})[MATRICES[matrix]] = tensor
            continue
        if matrix:
            raise InputError(f"{path}: {key}: expected the matrices A and B of a linear layer or an embedding")
        target = find(name)
        is_saved = any(f".{part}." in f".{name}" for part in saved)
        if target in shared and is_saved:
            raise _shared(path, name)
        if target is None and not is_saved:
            raise InputError(f"{path}: {key}: the base model ({adapter.base}) has no such tensor")
        if target is not None and tensors[target].shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)}, and that of the base model {tuple(tensors[target].shape)}"
            raise InputError(f"{path}: {key} has shape {shapes}; expected the base model that it was trained with")
        result[target or name] = tensor
    if not pairs:
        raise InputError(f"{path}: it has no matrices of LoRA; save the adapter again with PEFT")
    for (module, is_embedding), pair in pairs.items():
        target = find(f"{module}.weight")
        if target is None:
            raise InputError(
                f"{path}: the base model ({adapter.base}) has no {module}.weight, which the adapter changes"
            )
        if target in shared:
            raise _shared(path, module)
        if len(pair) != 2 or pair["A"].shape[0] != pair["B"].shape[1]:
            raise InputError(f"{path}: {module}: expected the matrices A (rank, inputs) and B (outputs, rank)")
        change = pair["B"].float() @ pair["A"].float() * _scale(config, module, rank=len(pair["A"]), path=path)
        change = change.T if is_embedding or target in transposed else change
        if result[target].shape != change.shape:
            shapes = f"{tuple(result[target].shape)}, and the adapter's matrices {tuple(change.shape)}"
            raise InputError(f"{path}: {target} has shape {shapes}; expected the base model that it was trained with")
        result[target] = result[target].float() + change
    return result


def _shared(path: Path, name: str) -> InputError:
    return InputError(
        f"{path}: it changes {name}, which the model uses at its input and again at its output; PEFT would change one "
        "of them. Merge the adapter with PEFT (merge_and_unload), and save the model"
    )


def _joined_folders() -> Path:
    return cache_folder() / "adapters"


def _weights(folder: Path) -> str:
    """The name of the file with the weights of an adapter."""
    name = preferred_weights([ADAPTER, *(path.name for path in folder.iterdir() if path.is_file())])
    if name is None:
        raise InputError(f"{folder}: {ADAPTER} without adapter_model.safetensors; copy the whole folder again")
    return name


def _read_config(path: Path) -> dict[str, object]:
    """The settings of an adapter; InputError names the first that Regard does not follow."""
    config = read_json(path)
    if config.get("peft_type") != "LORA":
        raise InputError(f"{path}: peft_type is {_short(config.get('peft_type'))}; Regard reads adapters of LoRA only")
    unknown = [key for key, value in config.items() if value and key not in HARMLESS]
    if unknown:
        raise InputError(
            f"{path}: {unknown[0][:60]} is {_short(config[unknown[0]])}, which Regard does not follow; merge the "
            "adapter with PEFT (merge_and_unload), and save the model"
        )
    if config.get("init_lora_weights") not in INITIALIZATIONS:
        raise InputError(
            f"{path}: init_lora_weights is {_short(config['init_lora_weights'])}, which changes the base model too; "
            "save the adapter with PEFT's path_initial_model_for_weight_conversion, or merge it"
        )
    return config


def _find_base(path: Path, config: Mapping[str, object], find: Callable[..., Path]) -> Path:
    name, revision = config.get("base_model_name_or_path"), config.get("revision") or "main"
    if not isinstance(name, str) or not name or not isinstance(revision, str):
        raise InputError(
            f"{path}: base_model_name_or_path is {_short(name)}; expected the name or folder of the base model"
        )
    try:
        base = find(name, revision=revision, adapters=False)
    except InputError as error:
        raise InputError(f"{path}: the base model: {error}") from error
    if not (base / "config.json").is_file():
        raise InputError(f"{path}: the base model {name[:200]} has no config.json; expected a model folder")
    return base


def _small_files(folder: Path) -> dict[str, bytes]:
    """The files of a model folder and of its modules, except the weights of the model."""
    names = [name for name in model_files(folder) if "/" in name or name in SMALL_FILES]
    return {name: read_file(folder / name, limit=LIMIT) for name in names}


def _with_head(document: dict[str, object], config: Mapping[str, object], folder: Path) -> dict[str, object]:
    """The config.json of the base model, with the class and the number of labels of the adapter's task."""
    head, family = HEADS.get(str(config.get("task_type"))), str(document.get("model_type"))
    known = format_of(family) if family in family_names() else None
    if head is None or known is None:
        return document
    document = {**document, "architectures": [f"{known.class_prefix}For{head}"]}
    output = known.task_heads.get(head, {}).get("output", "classifier")
    tensors = read_tensors(folder)
    labels = next((len(tensor) for name, tensor in tensors.items() if name.endswith(f".{output}.weight")), None)
    names = document.get("id2label")
    if labels is not None and head != HEADS["QUESTION_ANS"] and len(names if isinstance(names, dict) else ()) != labels:
        document["id2label"] = {str(number): f"LABEL_{number}" for number in range(labels)}
        document["label2id"] = {f"LABEL_{number}": number for number in range(labels)}
    return document


def _plain_name(key: str, path: Path) -> str:
    """The name of a tensor of an adapter, without what PEFT's modules add to it."""
    if not key.startswith(BEGIN):
        raise InputError(f"{path}: {key[:200]}: expected a name that begins with {BEGIN}")
    name = key.removeprefix(BEGIN).replace(".base_layer.", ".")
    return name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".")


def _scale(config: Mapping[str, object], module: str, *, rank: int, path: Path) -> float:
    """The factor of B A for a layer."""
    stated, alpha = (
        _by_pattern(config, f"{name}_pattern", module, config.get(key), path)
        for name, key in (("rank", "r"), ("alpha", "lora_alpha"))
    )
    if stated != rank or rank < 1:
        raise InputError(
            f"{path}: {module} has rank {rank}, and {ADAPTER} says {_short(stated)}; copy the folder again"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise InputError(f"{path}: lora_alpha is {_short(alpha)}; expected a number")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _by_pattern(config: Mapping[str, object], key: str, module: str, default: object, path: Path) -> object:
    """The value of the first pattern that matches the end of a layer's name."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        raise InputError(f"{path}: {key} is {_short(patterns)}; expected an object")
    for pattern, value in patterns.items():
        try:
            if not PATTERN.fullmatch(pattern):
                raise re.error("repetitions are not supported")
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise InputError(f"{path}: {key}: {_short(pattern)}: {error}") from None
    return default


def _strings(config: Mapping[str, object], key: str, path: Path) -> list[str]:
    values = config.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{path}: {key} is {_short(values)}; expected a list of names")
    return values


def _short(value: object) -> str:
    """A value from a file, shortened for a message."""
    return repr(value)[:60]
