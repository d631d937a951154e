"""Reads and writes config.json. Values are strictly typed, and nothing in the file is executed.

Settings that would change the computation in an unsupported way are refused; keys that do not affect the computation
(names, dates, labels) are ignored.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from regard.checkpoints.file_format import HEADS, SIZES, FileFormat, format_of
from regard.checkpoints.files import TASK, TRANSLATION
from regard.checkpoints.storage import INT8_FORMAT
from regard.errors import InputError, suggest
from regard.files.json_files import read_json
from regard.models.family import Family, families, family_names, get_family
from regard.nn.block import TRANSFORMERS_ACTIVATIONS

CODE = ("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code", "code_revision")
KERNELS = ("eager", "sdpa", "torch", "flash_attention_2", "flash_attention_3", "flex_attention")
# Keys of any file that do not affect the computation, or describe task heads.
HARMLESS = {
    *("_name_or_path", "architectures", "auto_map", "model_type", "torch_dtype", "dtype", "transformers_version"),
    *("id2label", "label2id", "num_labels", "problem_type", "classifier_dropout", "finetuning_task"),
    *("initializer_range", "use_cache", "output_attentions", "output_hidden_states", "return_dict", "torchscript"),
    *("gradient_checkpointing", "pad_token_id", "bos_token_id", "eos_token_id", "mask_token_id", "sep_token_id"),
    *("cls_token_id", "attn_implementation", "_attn_implementation", "tokenizer_class", "quantization_config"),
}
PAIRS = ("image_size", "patch_size")  # height and width; files have one number for equal ones
SCALARS = {
    int: core_schema.int_schema(),
    float: core_schema.float_schema(),
    bool: core_schema.bool_schema(),
    str: core_schema.str_schema(),
}
MAY_BE_ZERO = (
    "global_layers",
    "no_rope_layers",
    "mlp_only_layers",
    "position_offset",
    "type_vocab_size",
    "embedding_size",
    "num_characters",
)
# The prefix of model_type for families that transformers does not have; their keys are Regard's field names.
NATIVE = "regard-"


def parse_config(document: Mapping[str, object], path: Path) -> Any:
    """Return the config of a model; `path` is only used in messages."""
    _refuse_code(document, path)
    if document.get("quantization_config") == INT8_FORMAT:
        document = {key: value for key, value in document.items() if key != "quantization_config"}
    family = _find_family(document, path)
    file = format_of(family.name)
    if file is not None:
        return parse_fields(document, family, file, path)
    fields = {key: value for key, value in document.items() if key not in ("model_type", "dtype")}
    return _validated(fields, family, {}, path)


def parse_fields(document: Mapping[str, object], family: Family, file: FileFormat, path: Path) -> Any:
    """Return the config of a family from a document with the keys of a file format."""
    return _validated(_read(document, family, file, path), family, file.keys, path)


def _validated(fields: Mapping[str, object], family: Family, keys: Mapping[str, str], path: Path) -> Any:
    names = {f.name for f in dataclasses.fields(family.config_class)}
    for name in fields:
        if name not in names:
            raise InputError(f"{path}: unknown key {_short(name)}; {suggest(name[:60], names)}")
    try:
        config = _validator(family.config_class).validate_json(
            json.dumps({**fields, "family": family.name}), strict=True
        )
    except ValidationError as error:
        problems = []
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else "the config"
            problems.append(f"{keys.get(name, name)}: {item['msg']} (found {_short(item['input'])})")
        raise InputError(f"{path}: {'; '.join(problems)}") from None
    _check(config, path, keys)
    return config


def is_translator(folder: Path) -> bool:
    """Whether a folder has a translator: one that Regard trained, or a model of a family that translates."""
    if (folder / TRANSLATION).is_file():
        return True
    path = folder / "config.json"
    if not path.is_file():
        return False
    name = str(read_json(path).get("model_type"))
    return name in family_names() and format_of(name) is not None and get_family(name).can("translation")


def task_class(folder: Path) -> tuple[str, str] | None:
    """The prefix and the head of the class that config.json names, ("Bert", "SequenceClassification").

    None if there is no such file or it names no class with a task head. Raises InputError for a file that is not JSON.
    """
    path = folder / "config.json"
    if not path.is_file():
        return None
    names = read_json(path).get("architectures")
    prefix, _, head = str(names[0]).partition("For") if isinstance(names, list) and names else ("", "", "")
    return (prefix, head) if head in HEADS else None


def has_task_head(folder: Path) -> bool:
    """Whether a folder has a model with a task head: one that Regard trained, or a published one."""
    try:
        return (folder / TASK).is_file() or task_class(folder) is not None
    except InputError:  # loading reports it
        return False


def _find_family(document: Mapping[str, object], path: Path) -> Family:
    """Return the family of a document; only an unknown model_type imports all families, for the suggestion."""
    family = _known_family(document)
    if family is not None:
        return family
    model_type = document.get("model_type")
    choices = dict.fromkeys(map(_model_type, families().values()))
    own = NATIVE + str(model_type)[:60]
    hint = suggest(own if own in choices else str(model_type)[:60], choices)
    raise InputError(f"{path}: model_type is {_short(model_type)}, which Regard does not know; {hint}")


def _known_family(document: Mapping[str, object]) -> Family | None:
    model_type = document.get("model_type")
    name = str(model_type).removeprefix(NATIVE).replace("_", "-")
    if name not in family_names() or _model_type(get_family(name)) != model_type:
        files = {name: format_of(name) for name in family_names()}
        name = next((name for name, file in files.items() if file and model_type in file.old_model_types), "")
    file = format_of(name) if name else None
    variants = {} if file is None else file.variants
    name = next((other for (key, value), other in variants.items() if document.get(key) == value), name)
    return get_family(name) if name else None


def _model_type(family: Family) -> str:
    """The model_type of a family in config.json."""
    file = format_of(family.name)
    return NATIVE + family.name if file is None else file.model_type or family.name


def _validator(config_class: Any) -> SchemaValidator:
    """Return the validator of a config. pydantic itself would double the time that Regard's imports take."""
    hints = get_type_hints(config_class)
    fields = [
        core_schema.dataclass_field(
            field.name, core_schema.with_default_schema(_schema(hints[field.name]), default=field.default)
        )
        for field in dataclasses.fields(config_class)
    ]
    name = config_class.__name__
    arguments = core_schema.dataclass_args_schema(name, fields)
    names, post_init = [field["name"] for field in fields], hasattr(config_class, "__post_init__")
    schema = core_schema.dataclass_schema(config_class, arguments, names, cls_name=name, post_init=post_init)
    return SchemaValidator(schema)


def _schema(hint: Any) -> CoreSchema:
    """Return the schema of a field: a scalar, a choice, a tuple, or one of these or None."""
    options = get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) is Literal:
        return core_schema.literal_schema(list(options))
    if get_origin(hint) is tuple:
        if options[1:] == (...,):
            return core_schema.tuple_schema([_schema(options[0])], variadic_item_index=0)
        return core_schema.tuple_schema(list(map(_schema, options)))
    (inner,) = (option for option in options if option is not NoneType)
    return core_schema.nullable_schema(_schema(inner))


def _refuse_code(document: Mapping[str, object], path: Path) -> None:
    """Refuse a document that names code to run, before anything else is read, unless a family replaces that code."""
    for key in CODE:
        if document.get(key) and not (key == "auto_map" and _is_replaced(document)):
            raise InputError(
                f"{path}: {key!r} names code to run, and Regard runs no code from a checkpoint. If Regard supports the "
                f"model family, remove {key!r} from the file; otherwise convert the model to a supported family"
            )
    for key, value in document.items():
        if "attn_implementation" in key and value is not None and value not in KERNELS:
            raise InputError(f"{path}: {key!r} names a kernel to download ({_short(value)}); remove it from the file")


def _is_replaced(document: Mapping[str, object]) -> bool:
    """Whether Regard has a family that computes what the code in `auto_map` does."""
    family, classes = _known_family(document), document["auto_map"]
    file = None if family is None else format_of(family.name)
    if file is None or not isinstance(classes, dict):
        return False
    return all(re.fullmatch(file.code, str(name)) for name in classes.values())


def _translated(document: Mapping[str, object], family: Family, file: FileFormat, path: Path) -> dict[str, object]:
    """Return a document with transformers' names of keys; refuse unknown keys if code was to read them."""
    if document.get("auto_map"):
        sections = {key.partition(".")[0] for key in file.keys.values()}
        unknown = document.keys() - HARMLESS - sections - file.fixed.keys() - file.aliases.keys() - {*file.code_keys}
        if unknown:
            raise InputError(
                f"{path}: {', '.join(sorted(map(_short, unknown))[:8])}: the file names code that reads these keys, "
                f"and Regard's {family.name} does not know them; remove those that do not change the computation"
            )
    result = {key: value for key, value in document.items() if key not in file.aliases}
    for alias, key in file.aliases.items():
        value = document.get(alias)
        if value is not None and result.setdefault(key, value) != value:
            raise InputError(f"{path}: {alias} is {_short(value)}, but {key} is {_short(result[key])}; remove one")
    return result


def _short(value: object) -> str:
    """Return a value from a file, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _read(document: Mapping[str, object], family: Family, file: FileFormat, path: Path) -> dict[str, Any]:
    """Translate a config.json of transformers to Regard's field names; types are checked later."""
    document = _translated(document, family, file, path)
    for key, value in {"quantization_config": None, **file.fixed}.items():
        if document.get(key) not in (None, value):
            raise InputError(
                f"{path}: {key} is {_short(document[key])}; Regard's {family.name} supports only {value!r}"
            )
    found = {ours: _find(document, key, path) for ours, key in file.keys.items()}
    fields: dict[str, Any] = {ours: value for ours, value in found.items() if value is not None}
    required = [name for name in SIZES if name in file.keys and name not in file.optional]
    missing = [file.keys[name] for name in required if name not in fields]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} is missing: this is not a complete {family.name} config.json")
    fields = {**file.defaults, **fields}
    try:
        file.read(fields, document)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    fields |= {name: [fields[name]] * 2 for name in PAIRS if isinstance(fields.get(name), int)}
    for field in _activations(fields):
        name = str(fields[field])
        if name not in TRANSFORMERS_ACTIVATIONS:
            hint = suggest(name[:60], TRANSFORMERS_ACTIVATIONS)
            raise InputError(f"{path}: {file.keys[field]} is {_short(found[field])}; {hint}")
        fields[field] = TRANSFORMERS_ACTIVATIONS[name]
    return fields


def _activations(fields: Collection[str]) -> list[str]:
    """The fields that name an activation: hidden_act, text_hidden_act."""
    return [name for name in fields if name.endswith("hidden_act")]


def _find(document: Mapping[str, object], key: str, path: Path) -> object:
    """The value of a key of config.json, None if it is missing."""
    if key in document:  # the keys of GGUF files contain points
        return document[key]
    *sections, last = key.split(".")
    for section in sections:
        inner = document.get(section) or {}
        if not isinstance(inner, dict):
            raise InputError(f"{path}: {section} is {_short(inner)}; expected an object with settings")
        document = inner
    return document.get(last)


def _check(config: Any, path: Path, theirs: Mapping[str, str]) -> None:
    """Refuse sizes that no model can be built from, such as a billion layers."""
    values = dataclasses.asdict(config)
    for name, value in values.items():
        key = theirs.get(name, name)
        low = 0 if name.endswith("_token_id") or name in MAY_BE_ZERO else 1
        high = 1000 if name.endswith(("_layers", "num_experts")) else 10_000_000
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and not isinstance(number, bool) and not low <= number <= high:
                raise InputError(f"{path}: {key} is {number}; it must be between {low} and {high}")
        if "dropout" in name and not 0 <= value < 1:
            raise InputError(f"{path}: {key} is {value}; it must be at least 0 and below 1")
        if name.endswith("layer_norm_eps") and not 0 < value < 1:
            raise InputError(f"{path}: {key} is {value}; it must be between 0 and 1")
    heads = values.get("num_attention_heads")
    if heads and "head_dim" not in values and values["hidden_size"] % heads:
        raise InputError(f"{path}: {heads} heads do not divide a width of {values['hidden_size']}")
    patch, image = values.get("patch_size", ()), values.get("image_size", ())
    if any(p > i for p, i in zip(patch, image, strict=True)):
        raise InputError(f"{path}: a patch of {patch} pixels is larger than the image, {image}")
    buckets, distance = values.get("relative_attention_num_buckets"), values.get("relative_attention_max_distance", 0)
    if buckets is not None and not 4 <= buckets < 2 * distance:
        raise InputError(
            f"{path}: {buckets} buckets for distances up to {distance}; expected 4 or more, below twice the distance"
        )
    words = values.get("target_vocab_size") or values.get("vocab_size") or values.get("target_size")
    start = values.get("decoder_start_token_id", 0)
    if words and start >= words:
        raise InputError(f"{path}: decoder_start_token_id is {start}, but the last token id is {words - 1}")


def write_config(config: Any, *, output_heads: Collection[str], dtype: str) -> dict[str, object]:
    """Return the config.json of a model; raise InputError for a config that the format cannot express."""
    document = _document(config, output_heads=output_heads, dtype=dtype)
    again = dataclasses.asdict(parse_config(document, Path("config.json")))
    lost = [f"{name} {value!r}" for name, value in dataclasses.asdict(config).items() if again[name] != value]
    if lost:
        raise InputError(
            f"a {config.family} config.json cannot store {', '.join(lost)}; choose the family's own values"
        )
    return document


def _document(config: Any, *, output_heads: Collection[str], dtype: str) -> dict[str, Any]:
    fields: dict[str, Any] = dataclasses.asdict(config)
    name = fields.pop("family")
    file = format_of(name)
    if file is None:
        return {"model_type": NATIVE + name, "dtype": dtype, **fields}
    names = {ours: theirs for theirs, ours in reversed(TRANSFORMERS_ACTIVATIONS.items())}
    values = {**fields, **{field: names[fields[field]] for field in _activations(fields)}}
    values |= {pair: values[pair][0] for pair in PAIRS if pair in values and len(set(values[pair])) == 1}
    tied = ("output",) if fields.get("tie_word_embeddings") and "output" in get_family(name).output_heads else ()
    document: dict[str, Any] = {
        "model_type": file.model_type or name,
        "dtype": dtype,
        "architectures": [file.architecture((*output_heads, *tied))],
        **file.written,
    }
    for ours, key in file.keys.items():
        section, last = document, key
        while "." in last:
            first, _, last = last.partition(".")
            section = section.setdefault(first, {})
        section[last] = values[ours]
    file.write(document, fields)
    return document
