"""config.json to a configuration and back: strictly typed, nothing in it is ever executed or looked up.

A setting that would change the arithmetic in a way Regard does not do is refused, not ignored; keys that only keep
books (names, dates, labels) are not read.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard.checkpoints.formats import ACTIVATIONS, FORMATS
from regard.errors import InputError, suggest
from regard.models.catalog import FAMILIES, Config

__all__ = ["parse_config", "write_config"]

CODE = ("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code", "code_revision")
KERNELS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    "max_position_embeddings",
)
MAY_BE_ZERO = ("position_offset", "type_vocab_size", "embedding_size", "num_characters")
# Keys of files that earlier versions wrote for Regard's own families.
EARLIER_NAMES = {
    "vocabulary": "vocab_size",
    "target_vocabulary": "target_vocab_size",
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "activation": "hidden_act",
    "eps": "layer_norm_eps",
    "shared": "share_embeddings",
    "padding": "pad_token_id",
    "begin": "decoder_start_token_id",
    "end": "eos_token_id",
    "characters": "num_characters",
    "cell": "cell_size",
    "source": "source_size",
    "target": "target_size",
    "embedding": "embedding_size",
}
NATIVE = "regard-"  # families with no file format elsewhere carry this prefix, and our own field names


def parse_config(document: Mapping[str, object], path: Path) -> Config:
    """The configuration in a config.json; `path` is only for messages."""
    _refuse_code(document, path)
    kind = document.get("model_type")
    known = [*FORMATS, *(NATIVE + name for name in FAMILIES if name not in FORMATS)]
    if not isinstance(kind, str) or kind not in known:
        hint = suggest(str(kind)[:60], known)
        raise InputError(f"{path}: model_type is {_short(kind)}, which Regard does not know; {hint}")
    family = kind.removeprefix(NATIVE)
    names = {f.name for f in dataclasses.fields(FAMILIES[family].config)}
    theirs: dict[str, str] = {}
    if kind in FORMATS:
        fields, theirs = _read(document, family, path), FORMATS[family].keys
    else:
        old = EARLIER_NAMES | ({"units": "hidden_size"} if family == "seq2seq" else {})
        ours = {key: value for key, value in document.items() if key not in ("model_type", "dtype")}
        fields = {key if key in names else old.get(key, key): value for key, value in ours.items()}
    for name in fields:
        if name not in names:
            raise InputError(f"{path}: unknown key {_short(name)}; {suggest(name[:60], names)}")
    adapter: TypeAdapter[Any] = TypeAdapter(FAMILIES[family].config)
    try:
        config: Config = adapter.validate_json(json.dumps({**fields, "family": family}), strict=True)
    except ValidationError as error:
        places = [(str(e["loc"][0]) if e["loc"] else "the whole", e["msg"], e["input"]) for e in error.errors()]
        faults = [f"{theirs.get(name, name)}: {message} (it is {_short(value)})" for name, message, value in places]
        raise InputError(f"{path}: {'; '.join(faults)}") from None
    _check(config, path, theirs)
    return config


def _refuse_code(document: Mapping[str, object], path: Path) -> None:
    """Nothing in a file may name code to run; say so before anything else is read."""
    for key in CODE:
        if document.get(key):
            raise InputError(
                f"{path}: {key!r} names code to run, and Regard runs no code from a checkpoint. If the model is of a "
                f"family Regard knows, remove {key!r} from the file; else convert it to one"
            )
    for key, value in document.items():
        if "attn_implementation" in key and value is not None and value not in KERNELS:
            raise InputError(f"{path}: {key!r} names a kernel to fetch ({_short(value)}); remove it from the file")


def _short(value: object) -> str:
    """A value from a file as part of a message; it may be of any size."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _read(document: Mapping[str, object], family: str, path: Path) -> dict[str, object]:
    """Their document in our fields; types are checked later."""
    shape = FORMATS[family]
    for key, value in {"quantization_config": None, **shape.fixed}.items():
        if document.get(key) not in (None, value):
            raise InputError(f"{path}: {key} is {_short(document[key])}; Regard's {family} only does {value!r}")
    found: dict[str, Any] = {ours: document[key] for ours, key in shape.keys.items() if document.get(key) is not None}
    if family == "gpt2":
        found.setdefault(
            "intermediate_size", 4 * found["hidden_size"] if isinstance(found.get("hidden_size"), int) else 0
        )
    missing = [shape.keys[name] for name in SIZES if name in shape.keys and name not in found]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} is missing: this is not a complete {family} config.json")
    if "hidden_act" in found:
        name = str(found["hidden_act"])
        if family == "t5":
            found["is_gated_act"] = name.startswith("gated-")
            name = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")  # as transformers reads it
        if name not in ACTIVATIONS:
            hint = suggest(name[:60], ACTIVATIONS)
            raise InputError(f"{path}: {shape.keys['hidden_act']} is {_short(found['hidden_act'])}; {hint}")
        found["hidden_act"] = ACTIVATIONS[name]
    if family == "roberta":
        padding = found.setdefault("pad_token_id", 1)
        if isinstance(padding, int) and isinstance(found["max_position_embeddings"], int):
            found["position_offset"] = padding + 1
            found["max_position_embeddings"] -= padding + 1
    elif family == "distilbert":
        found["type_vocab_size"] = 0
    elif family == "t5":
        found.setdefault("num_decoder_layers", found["num_hidden_layers"])
        found.setdefault("decoder_start_token_id", found.get("pad_token_id", 0))
        found["scale_decoder_outputs"] = document.get("scale_decoder_outputs", found.get("scale_decoder_outputs", True))
    elif family == "vit":
        for name in ("image_size", "patch_size"):
            if isinstance(found.get(name), int):
                found[name] = [found[name]] * 2
        labels = document.get("id2label")
        found["num_labels"] = document.get("num_labels", len(labels) if isinstance(labels, dict) else 2)
    return found


def _check(config: Config, path: Path, theirs: Mapping[str, str]) -> None:
    """Numbers a model can be built from: a file must not ask for a billion layers."""
    values = dataclasses.asdict(config)
    for name, value in values.items():
        key = theirs.get(name, name)
        low = 0 if name.endswith("_token_id") or name in MAY_BE_ZERO else 1
        high = 1000 if name.endswith("_layers") else 10_000_000
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and not isinstance(number, bool) and not low <= number <= high:
                raise InputError(f"{path}: {key} is {number}; it must be between {low} and {high}")
        if "dropout" in name and not 0 <= value < 1:
            raise InputError(f"{path}: {key} is {value}; it must be at least 0 and below 1")
        if name == "layer_norm_eps" and not 0 < value < 1:
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
            f"{path}: {buckets} buckets of distance up to {distance}: expected 4 or more, fewer than twice the distance"
        )
    words = values.get("target_vocab_size") or values.get("vocab_size") or values.get("target_size")
    start = values.get("decoder_start_token_id", 0)
    if words and start >= words:
        raise InputError(f"{path}: decoder_start_token_id is {start}, and the last token id is {words - 1}")


def write_config(config: Config, *, heads: Collection[str], dtype: str) -> dict[str, object]:
    """The document for config.json, in the words other software reads; what these cannot say is refused, not lost."""
    document = _document(config, heads=heads, dtype=dtype)
    again = dataclasses.asdict(parse_config(document, Path("config.json")))
    lost = [f"{name} {value!r}" for name, value in dataclasses.asdict(config).items() if again[name] != value]
    if lost:
        raise InputError(f"no {config.family} config.json can say {', '.join(lost)}; choose the family's own values")
    return document


def _document(config: Config, *, heads: Collection[str], dtype: str) -> dict[str, object]:
    ours: dict[str, Any] = dataclasses.asdict(config)
    family = ours.pop("family")
    if family not in FORMATS:
        return {"model_type": NATIVE + family, "dtype": dtype, **ours}
    document = {key: ours[name] for name, key in FORMATS[family].keys.items()}
    document |= {"model_type": family, "dtype": dtype, "architectures": [_architecture(family, heads)]}
    activation = next(theirs for theirs, name in ACTIVATIONS.items() if name == ours["hidden_act"])
    document[FORMATS[family].keys["hidden_act"]] = activation
    if family == "roberta":
        document["max_position_embeddings"] += ours["position_offset"]
    elif family == "gpt2":
        document["embd_pdrop"] = ours["dropout"]
    elif family == "t5":
        if ours["is_gated_act"]:  # they read "gated-gelu" as gelu_new
            names = {"gelu_new": "gelu", "gelu": "gelu_python"}
            document["feed_forward_proj"] = f"gated-{names.get(activation, activation)}"
        document["is_encoder_decoder"] = True
    elif family == "vit":
        for key in ("image_size", "patch_size"):
            high, wide = document[key]
            document[key] = high if high == wide else [high, wide]
        document["id2label"] = {str(i): f"LABEL_{i}" for i in range(ours["num_labels"])}
        document["label2id"] = {f"LABEL_{i}": i for i in range(ours["num_labels"])}
    return document


def _architecture(family: str, heads: Collection[str]) -> str:
    if family == "gpt2":
        return "GPT2LMHeadModel"
    if family == "t5":
        return "T5ForConditionalGeneration"
    if family == "vit":
        return "ViTForImageClassification" if "classifier" in heads else "ViTModel"
    name = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta"}[family]
    masked, follows = "masked" in heads, "next" in heads
    if follows:
        return name + ("ForPreTraining" if masked else "ForNextSentencePrediction")
    return name + ("ForMaskedLM" if masked else "Model")
