"""`regard.load` and `regard.save`: read and write a model with its tokenizer.

Errors name each tensor that does not match config.json. The tables that convert tensors between transformers' names and
Regard's are in the families of `regard.models`.
"""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from regard.checkpoints.configs import parse_config, write_config
from regard.checkpoints.file_format import Table, TensorNames, format_of
from regard.checkpoints.files import ADAPTER, read_tensors, write_folder
from regard.checkpoints.gguf import read_gguf_config, read_gguf_tensors
from regard.checkpoints.module_folders import first_module
from regard.checkpoints.packages import PACKAGES, packaged_folder
from regard.checkpoints.peft import Adapter, add_adapter, joined_folder, read_record
from regard.checkpoints.static_embedding import is_model2vec, read_static_embedding
from regard.checkpoints.storage import SCALE, dequantize
from regard.engine.precision import convert_to_int8
from regard.errors import InputError, suggest
from regard.files.disk import finish_save
from regard.files.gguf_file import find_gguf, read_gguf
from regard.files.json_files import json_bytes, read_json
from regard.known import BUILT_IN, INSTALL, builtin_folder, builtin_names
from regard.models.family import build, can, describe_family, family_names, get_family
from regard.text import Tokenizer

ALIGNMENT = 64  # bytes, that of torch's CPU allocator


def load(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    revision: str = "main",
    offline: bool | None = None,
) -> tuple[nn.Module, Tokenizer | None]:
    """Load a model in evaluation mode and its tokenizer, from a folder, a GGUF file, a built-in name, the name of a
    model in an installed package (all-mpnet-base-v2) or a Hugging Face hub name.

    The tokenizer is None if the model has none, such as a Vision Transformer. Weights are converted to `dtype`;
    with torch.int8, the matrices of a decoder stay in 8 bits on a CPU.
    """
    folder = find_folder(name_or_path, revision=revision, offline=offline)
    with _collector_paused():
        first, folder = _weights_folder(folder)
        if first == "StaticEmbedding":
            static = read_static_embedding(folder).to(device)
            return static, Tokenizer.open(folder, rows=static.config.vocab_size, plain=True)
        model = read_model(folder, dtype=torch.float32 if dtype == torch.int8 else dtype).to(device)
        if dtype == torch.int8:
            convert_to_int8(model)
        rows = getattr(model.config, "vocab_size", None)
        return model, Tokenizer.open(folder, rows=rows) if Tokenizer.exists(folder) else None


def save(model: nn.Module, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
    """Write a model folder with checksums, atomically. transformers can load it if it supports the family."""
    write_model(model, Path(folder), files={} if tokenizer is None else tokenizer.files())


def find_folder(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str = "main",
    offline: bool | None = None,
    weights: bool = True,
    adapters: bool = True,
) -> Path:
    """Return the folder of a model, or its GGUF file; a model on the hub is downloaded to the cache first.

    NAME@REVISION names a commit, a tag or a branch of a model on the hub. A folder of PEFT becomes one with its base
    model, unless `adapters` are refused. Without `weights`, the files on the hub that describe a model suffice.
    """
    folder = _find_folder(name_or_path, revision=revision, offline=offline, weights=weights)
    if not (folder / ADAPTER).is_file():
        return folder
    if not adapters:
        raise InputError(f"{folder}: is an adapter of PEFT itself; expected the model to which an adapter is added")
    return joined_folder(folder, partial(find_folder, offline=offline, weights=weights))


def _find_folder(name_or_path: str | os.PathLike[str], *, revision: str, offline: bool | None, weights: bool) -> Path:
    name = os.fspath(name_or_path)
    folder = Path(os.path.expanduser(name))
    if name and os.path.isdir(folder):  # unlike Path.is_dir, os.path.isdir accepts any string
        finish_save(folder)
        return folder
    if name in builtin_names():
        return builtin_folder(name)
    if name in PACKAGES:
        return packaged_folder(name)
    if name in BUILT_IN and BUILT_IN[name].second_package:
        raise InputError(f"{name} is a built-in model of the package regard-models, which is not installed: {INSTALL}")
    if name.startswith("regard-"):
        known = builtin_names()
        hint = suggest(name, known) if known else "this installation has no built-in models"
        raise InputError(
            f"no built-in model {name!r}: {hint}. Give a model folder, or a model on the Hugging Face hub such as "
            "sentence-transformers/all-MiniLM-L6-v2"
        )
    if os.path.isfile(folder):
        if find_gguf(folder) is not None:
            return folder
        raise InputError(f"{name}: this is a file; expected a model folder, such as {folder.parent}, or a GGUF file")
    if (
        isinstance(name_or_path, os.PathLike)
        or name.startswith((".", "~", os.sep))
        or name.partition("@")[0].count("/") > 1
    ):
        beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if os.path.isdir(folder.parent) else []
        hint = f"; {suggest(folder.name, beside)}" if 0 < len(beside) <= 30 else ""
        raise InputError(f"{name}: no such folder{hint}")
    from regard.checkpoints.hub import fetch

    return fetch(name, revision=revision, offline=offline, weights=weights)


def _weights_folder(folder: Path) -> tuple[str, Path]:
    """The kind of a folder's first module, and the folder of its weights: old versions of sentence-transformers gave
    it one of its own."""
    first = first_module(folder) if folder.is_dir() else None
    if first is None:
        return ("StaticEmbedding" if folder.is_dir() and is_model2vec(folder) else "Transformer"), folder
    return first.kind, folder if (folder / "config.json").is_file() else first.folder


def read_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the model in a folder, in evaluation mode, on the CPU, with the heads that the file contains."""
    model, unused = read_parts(folder, dtype=dtype)
    warn_unused(folder, unused)
    return model


def warn_unused(folder: Path, names: Collection[str]) -> None:
    """Warn of tensors in a file that nothing reads, if there are any."""
    if names:
        warnings.warn(f"{folder}: not used: {_some(sorted(names))}", stacklevel=4)


def read_parts(
    folder: Path, *, dtype: torch.dtype = torch.float32, others: Collection[str] = ()
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model in a folder and the other tensors in the file, by their names there.

    `others` are layers outside the model that the file should have: an error does not list their tensors.
    """
    gguf = find_gguf(folder)
    path = gguf or folder / "config.json"
    if gguf is not None:
        file = read_gguf(gguf)
        config, form = read_gguf_config(file)
        names, tensors = form.names(config), read_gguf_tensors(file)
        tensors = {name: names.convert(name, tensor) for name, tensor in tensors.items()}
    elif path.is_file():
        document = read_json(path)
        config = parse_config(document, path)
        adapter = read_record(folder)
        source = folder if adapter is None else adapter.base
        names, tensors = names_of(config).of_class(document), dequantize(read_tensors(source), source)
        if adapter is not None:
            tensors = _adapted(names, config, tensors, adapter)
    else:
        raise InputError(
            f"{folder}: no config.json; expected a model folder with config.json and model.safetensors, or a GGUF file"
        )
    names = fitted(names, tensors)
    tensors = tidied(names, tensors)
    output_heads = output_heads_in(names, get_family(config.family).output_heads, tensors)
    try:
        with torch.device("meta"), SkipInit():  # allocates nothing: every weight comes from the file
            model = build(config, output_heads=output_heads)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{path}: {error}") from error
    table = tensor_table(names, model)
    unused = _compare(names, table, tensors=tensors, wanted=model.state_dict(), path=path, others=others)
    if unused and gguf is not None:
        raise InputError(
            f"{path}: the model has tensors that Regard's {config.family} does not: {_some(sorted(unused))}"
        )
    state = {ours: from_theirs(names, ours, [tensors[name] for name in theirs]) for ours, theirs in table.items()}
    model.load_state_dict({ours: _aligned(tensor.to(dtype)) for ours, tensor in state.items()}, assign=True)
    if can(model, "image"):
        from regard.data.image_processor import read_image_processor  # text models do not need it

        model.image_processor = read_image_processor(folder, config)
    return model.requires_grad_(True).eval(), {name: tensors[name].to(dtype) for name in unused}


def _adapted(names: TensorNames, config: Any, tensors: dict[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """Return the tensors of a file with those of an adapter."""
    current = fitted(names, tensors)
    table = entries(current, config, current.output_heads)
    return add_adapter(
        tidied(current, tensors),
        adapter,
        prefix=names.prefix,
        transposed={name for ours, theirs in table.items() if re.fullmatch(names.transposed, ours) for name in theirs},
        shared=set(current.copies.values()),
    )


def write_model(
    model: nn.Module,
    folder: Path,
    *,
    files: Mapping[str, bytes],
    rest: Mapping[str, Tensor] | None = None,
    about: Mapping[str, object] | None = None,
    overwrite: bool = False,
) -> None:
    """Write config.json, the weights and `files`, all or nothing, with checksums.

    `rest` are additional tensors and `about` additional keys of config.json, under the names of transformers.
    `overwrite` is passed to `write_folder`.
    """
    model = getattr(model, "_orig_mod", model)  # unwrap a compiled model
    config: Any = getattr(model, "config", None)
    if getattr(config, "family", None) not in family_names():
        raise InputError(f"{folder}: a {type(model).__name__} cannot be saved; expected a model of regard.models")
    names, state = names_of(config).of_class(about or {}), model.state_dict()
    table = tensor_table(names, model)
    if lost := sorted(state.keys() - table.keys()):
        title = describe_family(config.family)
        raise InputError(f"{folder}: not written: the format of {title} cannot store {_some(lost)}")
    tensors: dict[str, Tensor] = dict(rest or {})
    for ours, theirs in table.items():
        tensors |= dict(zip(theirs, to_theirs(names, ours, state[ours], len(theirs)), strict=True))
    if can(model, "image"):
        from regard.data.image_processor import PROCESSOR_FILE, image_processor_of

        files = {**files, PROCESSOR_FILE: json_bytes(image_processor_of(model).to_dict())}
    contents = {**files, "config.json": config_file(model, about)}
    write_folder(folder, tensors=tensors, files=contents, overwrite=overwrite)


def config_file(model: nn.Module, about: Mapping[str, object] | None = None) -> bytes:
    """The config.json of a model of `regard.models`; `about` are additional keys."""
    config: Any = model.config
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return json_bytes({**write_config(config, output_heads=output_heads_of(model), dtype=dtype), **(about or {})})


def output_heads_of(model: nn.Module) -> list[str]:
    """The heads that a model has."""
    config: Any = model.config
    return [head for head in get_family(config.family).output_heads if getattr(model, head, None) is not None]


def tensor_table(names: TensorNames, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the table of a model's tensors: our name -> their names."""
    state = model.state_dict()
    if not names.base:
        return {name: (name,) for name in state}
    table = entries(names, model.config, names.output_heads)
    return {ours: theirs for ours, theirs in table.items() if ours in state}


def _compare(
    names: TensorNames,
    table: Mapping[str, tuple[str, ...]],
    *,
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    path: Path,
    others: Collection[str],
) -> set[str]:
    """Raise InputError that names each tensor that does not match; return the names of unused tensors."""
    unused = set(tensors)
    problems = []
    for ours, theirs in table.items():
        for name, part in zip(theirs, to_theirs(names, ours, wanted[ours], len(theirs)), strict=True):
            unused.discard(name)
            if name not in tensors:
                problems.append(f"{name} is missing")
            elif tensors[name].shape != part.shape:
                problems.append(f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(part.shape)}")
            elif tensors[name].dtype == torch.int8:
                problems.append(f"{name} is stored in 8 bits without its scales, {name}{SCALE}")
            elif not tensors[name].is_floating_point():
                problems.append(f"{name} has dtype {tensors[name].dtype}, expected a floating point type")
    for name in sorted(unused & names.copies.keys()):
        problems.append(f"{name} differs from {names.copies[name]}, but Regard uses one tensor for both")
    if problems:
        unexpected = {name for name in unused - names.copies.keys() if name.rpartition(".")[0] not in others}
        problems += [f"{name} is not expected" for name in sorted(unexpected)]
        where, settings = (path.parent, path.name) if path.name == "config.json" else (path, "its metadata")
        raise InputError(f"{where}: the weights do not match {settings}: {_some(problems)}")
    return unused


def _aligned(tensor: Tensor) -> Tensor:
    """Return the tensor at an address with the alignment of torch's allocator.

    In a memory-mapped file a tensor may start at any address, and the last bit of MKL's matrix products depends on
    the alignment: a loaded model must compute the same values as the saved one.
    """
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: loading makes no garbage, and one pass through torch's objects takes 0.1 s."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class SkipInit(TorchFunctionMode):
    """Skips random initialization, which on the device "meta" would only import torch's compiler."""

    RANDOM = frozenset({Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_})

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _some(items: list[str], most: int = 8) -> str:
    """Return the first items and the number of the others."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(item[:200] for item in items[:most]) + more


def names_of(config: Any) -> TensorNames:
    """Return the tensor names in the files of a family; `base` is empty for Regard's own format."""
    family = get_family(config.family)
    file = format_of(family.name)
    if file is not None:
        return file.names(config)
    return TensorNames(output_heads={head: {f"{head}.{{p}}": f"{head}.{{p}}"} for head in family.output_heads})


def entries(names: TensorNames, config: Any, output_heads: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the table of a config: our name -> their names, for every layer."""
    table = _expand(names.base, "", names.prefix)
    for (ours, theirs), layer in names.layers.items():
        for i in range(_depth(config, ours)):
            table |= _expand(layer, f"{ours}.{i}.", f"{names.prefix}{theirs}.{i}.")
    for head in output_heads:
        table |= _head(names, head)
    return table


def output_heads_in(names: TensorNames, output_heads: Iterable[str], tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the `output_heads` of which a file has at least one tensor that a fine-tuned model does not have."""
    found = {name for name in tensors if not re.fullmatch(names.shared, name)}
    return [
        head for head in output_heads if any(not found.isdisjoint(theirs) for theirs in _head(names, head).values())
    ]


def _head(names: TensorNames, head: str) -> dict[str, tuple[str, ...]]:
    table = _expand(names.output_heads[head], "", "")
    return {ours: tuple(name.replace("{base}", names.prefix) for name in theirs) for ours, theirs in table.items()}


def _expand(table: Table, prefix: str, their_prefix: str) -> dict[str, tuple[str, ...]]:
    expanded = {}
    for ours, theirs in table.items():
        names = (theirs,) if isinstance(theirs, str) else theirs
        for p in ("weight", "bias") if "{p}" in ours else ("",):
            expanded[prefix + ours.replace("{p}", p)] = tuple(their_prefix + name.replace("{p}", p) for name in names)
    return expanded


def _depth(config: Any, stack: str) -> int:
    """Return the number of layers of a stack: num_decoder_layers of "decoder.layers", if the config has that field."""
    part = stack.partition(".")[0].removesuffix("_encoder")
    depth: int = getattr(config, f"num_{part}_layers", config.num_hidden_layers)
    return depth


def fitted(names: TensorNames, tensors: Iterable[str]) -> TensorNames:
    """Return the names with the prefix that a file uses: files of a base model have none."""
    prefixes = (names.prefix, *names.old_prefixes)
    prefix = next((prefix for prefix in prefixes if any(name.startswith(prefix) for name in tensors)), "")
    copies = {copy: original.replace("{base}", prefix) for copy, original in names.copies.items()}
    return replace(names, prefix=prefix, copies=copies)


def tidied(names: TensorNames, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file with current names, without buffers and copies; a copy may replace its original."""
    result = {
        _modern(name): tensor
        for name, tensor in tensors.items()
        if not re.fullmatch(names.buffers, name.removeprefix(names.prefix))
    }
    for copy, original in names.copies.items():
        if copy in result and original not in result:
            result[original] = result.pop(copy)
        elif copy in result and (result[copy].is_meta or torch.equal(result[copy], result[original])):
            del result[copy]
    return result


def _modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def from_theirs(names: TensorNames, ours: str, parts: list[Tensor]) -> Tensor:
    """Convert their tensors to one of ours."""
    tensor: Tensor = names.decode(ours, torch.cat(parts) if len(parts) > 1 else parts[0])
    if re.fullmatch(names.squeezed, ours):
        return tensor.reshape(1, -1, tensor.shape[-1])
    return tensor.T.contiguous() if tensor.ndim == 2 and re.fullmatch(names.transposed, ours) else tensor


def to_theirs(names: TensorNames, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
    """Convert one of our tensors to `count` of theirs."""
    tensor = names.encode(ours, tensor)
    if re.fullmatch(names.squeezed, ours):
        tensor = tensor.squeeze()
    if tensor.ndim == 2 and re.fullmatch(names.transposed, ours):
        tensor = tensor.T
    if count == 1:
        return [tensor.contiguous()]
    sizes = names.qkv_sizes if count == 3 else None
    parts = tensor.chunk(count) if sizes is None else torch.split(tensor, list(sizes))
    return [part.contiguous() for part in parts]
