"""Reads tensors from model folders and writes complete folders with checksums. Does not depend on models.

Files may come from untrusted sources: nothing in them is executed, and errors name the file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from regard.errors import InputError, RegardError, is_out_of_memory
from regard.files.checksums import CHECKSUMS, sha256_of, stays_inside, written_files
from regard.files.disk import finish_save, replace_folder
from regard.files.file_input import check_regular, format_size
from regard.files.json_files import json_bytes, read_json

CONVERT = (
    "If you trust its source, open the file with torch.load, and save its tensors as model.safetensors with "
    "safetensors.torch.save_file"
)
INDEX = ".index.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
TASK = "task.json"  # in the folder of a fine-tuned model
TRANSLATION = "translate.json"  # in the folder of a translator
ADAPTER = "adapter_config.json"  # in a folder of PEFT, whose weights are added to those of another model
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
WEIGHTS = (SAFETENSORS, SAFETENSORS + INDEX, PICKLE, PICKLE + INDEX)
OUR_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_outlines: ContextVar[Mapping[Path, Mapping[str, torch.Tensor]] | None] = ContextVar("outlines", default=None)
DAMAGED = "damaged or cut short; download or copy it again"


def read_tensors(folder: str | os.PathLike[str], *, verified: bool = False) -> dict[str, torch.Tensor]:
    """Return all tensors of a model folder by name, on the CPU, memory mapped if the format allows it.

    Safetensors take precedence over pickles, and a single file over shards. If there is a `checksums.json`, the files
    it lists are verified, unless the caller knows that they are `verified`.
    """
    folder, outlines = Path(folder), _outlines.get()
    if outlines is not None and folder in outlines:
        return dict(outlines[folder])
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder with config.json and the weights")
    finish_save(folder)
    present = os.listdir(folder)
    chosen = preferred_weights(present)
    if chosen is None:
        raise InputError(
            f"{folder}: no readable weights: expected one of {', '.join(WEIGHTS)}; found "
            f"{', '.join(sorted(present)[:12]) or 'nothing'}. Convert other formats to {SAFETENSORS}"
        )
    listed = {} if verified or outlines is not None else verify(folder)
    if listed and chosen not in listed:
        raise InputError(f"{folder / chosen}: not listed in {CHECKSUMS}; remove one of the two")
    tensors = _read_shards(folder / chosen) if chosen.endswith(INDEX) else read_tensor_file(folder / chosen)
    return tensors if outlines is None else {name: tensor.to("meta") for name, tensor in tensors.items()}


@contextmanager
def outlines_only(known: Mapping[Path, Mapping[str, torch.Tensor]]) -> Iterator[None]:
    """Inside, tensors are read as outlines: on the device meta, with their shapes and dtypes but without values.

    Everything that loading checks can so be checked quickly; a model must be loaded onto the device meta, too. `known`
    are the outlines of folders that lack their weights.
    """
    token = _outlines.set(known)
    try:
        yield
    finally:
        _outlines.reset(token)


def reads_outlines() -> bool:
    """Whether tensors are read as outlines."""
    return _outlines.get() is not None


def verify(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Verify a folder against its `checksums.json` and return the listed checksums; empty if there is none."""
    manifest = Path(folder) / CHECKSUMS
    if not manifest.exists():
        return {}
    listed: dict[str, str] = {}
    for name, expected in read_json(manifest).items():
        if not stays_inside(name) or not isinstance(expected, str) or not expected.startswith("sha256:"):
            raise InputError(f"{manifest}: expected file names with 'sha256:...', found {name!r}: {expected!r}")
        path = Path(folder) / name
        if not path.is_file():
            raise InputError(
                f"{path}: missing, but listed in {CHECKSUMS}; download or copy it again, or {manifest} if that is"
                " damaged"
            )
        if checksum(path) != expected:
            raise InputError(
                f"{path}: does not match {CHECKSUMS}: {DAMAGED}. If it was changed on purpose, delete {manifest}"
            )
        listed[name] = expected
    return listed


def write_folder(
    folder: str | os.PathLike[str],
    *,
    tensors: Mapping[str, torch.Tensor],
    files: Mapping[str, bytes],
    shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> None:
    """Write a complete model folder: `tensors` as safetensors, `files` by name, and the checksums of all.

    The write is atomic. In an existing folder, files of an earlier save that the new one lacks are removed and all
    other files stay. Files of an earlier save are those listed in `checksums.json`. Another file with the name of a
    file to write is refused unless it is identical or `overwrite` is set. The output is deterministic.
    """
    for name in files:
        if not stays_inside(name) or name[0] == "." or name == CHECKSUMS or OUR_WEIGHTS.fullmatch(name):
            raise InputError(f"{name!r} is not allowed as the name of a file beside the weights")
    shards = _plan_shards(tensors, shard_bytes=shard_bytes)
    contents = dict(files)
    if len(shards) > 1:
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        weight_map = {name: shard for shard, names in shards.items() for name in names}
        contents[SAFETENSORS + INDEX] = json_bytes({"metadata": {"total_size": total}, "weight_map": weight_map})
    finish_save(folder)
    new = {*contents, *shards}
    if not overwrite:
        refuse_foreign_files(folder, contents)  # before large weights are written
    earlier = written_files(folder) | (weight_files(Path(folder)) if overwrite else set())
    with replace_folder(folder, remove=sorted(earlier - new - {CHECKSUMS})) as staging:
        try:
            for shard, names in shards.items():
                write_safetensors(staging / shard, {name: tensors[name] for name in names})
            for name, data in contents.items():
                path = staging / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            sums = {name: checksum(staging / name) for name in new}
            (staging / CHECKSUMS).write_bytes(json_bytes(sums))
            if not overwrite:
                refuse_foreign_files(folder, dict.fromkeys(weight_files(Path(folder))), sums=sums)
        except (SafetensorError, OSError) as error:  # a full disk may raise SafetensorError
            raise RegardError(
                f"{folder}: cannot be written: {error}; existing files are unchanged. Make room, or write elsewhere"
            ) from error


def refuse_foreign_files(
    folder: str | os.PathLike[str], files: Mapping[str, bytes | None], *, sums: Mapping[str, str] | None = None
) -> None:
    """Raise InputError if one of `files` exists in the folder and was not written by `write_folder`.

    A file with the same content, or with the checksum in `sums`, is accepted.
    """
    folder = Path(folder)
    for name in sorted({*files, CHECKSUMS} - written_files(folder)):
        path, content = folder / name, files.get(name)
        if not os.path.lexists(path) or (content is not None and path.is_file() and path.read_bytes() == content):
            continue
        if path.is_file() and (sums or {}).get(name) == checksum(path):
            continue
        raise InputError(
            f"{path}: this file is in the way: {folder / CHECKSUMS} does not list it, so Regard may not have written "
            "it; move it, or write to another folder"
        )


def checksums(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a `checksums.json` for files of a folder without weights, to be checked by `verify`."""
    listed = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    return {CHECKSUMS: json_bytes(listed)}


def preferred_weights(names: Collection[str]) -> str | None:
    """Return the weight file, or index of weight files, to read among the files of a folder; None if there is none.

    In a folder with an adapter, as for transformers, other weights do not count.
    """
    return next((name for name in (ADAPTER_WEIGHTS if ADAPTER in names else WEIGHTS) if name in names), None)


def read_index(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read an index file: the name of each tensor and of the file in the same folder that contains it."""
    path = Path(path)
    weight_map = read_json(path, limit=64_000_000).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(
            f"{path}: expected an object 'weight_map' of tensor names and file names; download or copy it again"
        )
    suffix = ".safetensors" if path.name == SAFETENSORS + INDEX else ".bin"
    index: dict[str, str] = {}
    for name, shard in weight_map.items():
        # Plain names only: no separators, drives, parent folders, or patterns that a download would expand.
        if not isinstance(shard, str) or not re.fullmatch(r"\w[\w.-]*", shard, re.ASCII) or not shard.endswith(suffix):
            raise InputError(
                f"{path}: refused: tensor {name!r} is listed in {shard!r}; "
                f"expected the plain name of a {suffix} file in the same folder"
            )
        index[name] = shard
    return index


def _read_shards(path: Path) -> dict[str, torch.Tensor]:
    index = read_index(path)
    shards: dict[str, list[str]] = {}
    for name, shard in index.items():
        shards.setdefault(shard, []).append(name)
    missing = [shard for shard in shards if not (path.parent / shard).is_file()]
    if missing:
        raise InputError(f"{path}: the folder lacks {_some(missing)}, named here; download or copy the missing files")
    tensors: dict[str, torch.Tensor] = {}
    for shard, names in shards.items():
        _refuse_link_outside(path.parent / shard)
        loaded = read_tensor_file(path.parent / shard)
        absent = [name for name in names if name not in loaded]
        if absent:
            raise InputError(f"{path.parent / shard}: does not contain {_some(absent)}, which {path.name} lists")
        tensors |= {name: loaded[name] for name in names}
    return tensors


def read_tensor_file(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of one file by name, on the CPU, memory mapped; nothing is verified."""
    try:
        check_regular(path)  # the libraries below would block on a FIFO
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a file of weights") from None
    if path.suffix != ".safetensors":
        return read_pickle(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except Exception as error:  # besides SafetensorError: dtypes that this version of torch lacks
        if is_out_of_memory(error):
            size = format_size(path.stat().st_size)
            raise RegardError(
                f"{path}: {size} of weights do not fit into memory; stop other programs, or use a smaller model"
            ) from error
        raise InputError(f"{path}: cannot be read as safetensors ({error}): {DAMAGED}") from error


def _refuse_link_outside(path: Path) -> None:
    """Refuse a link that leaves the folder: the index is untrusted. Only the cache of the hub consists of links."""
    folder, real = path.parent.resolve(), path.resolve()
    in_cache = folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--")
    if not real.is_relative_to(folder.parents[2] if in_cache else folder):
        raise InputError(f"{path}: refused: a link that leaves the folder; put a copy of the file there")


def read_pickle(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors by name, on the CPU, memory mapped unless the file has the old format without an archive."""
    max_bytes = 20 * path.stat().st_size + 64_000_000
    try:
        if zipfile.is_zipfile(path):
            _check_archive(path, max_bytes=max_bytes)
        with path.open("rb") as file:
            mapped = file.read(4) == b"PK\x03\x04"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about files that are refused anyway
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except RegardError:
        raise
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise _unreadable(path, error) from error
    return _check_tensors(path, loaded, max_bytes=max_bytes)


def _check_archive(path: Path, *, max_bytes: int) -> None:
    """Refuse a compressed archive: torch.save does not compress."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > max_bytes or any(entry.compress_type for entry in entries):
        raise InputError(
            f"{path}: refused: an archive that grows when unpacked, which torch.save does not write; "
            f"nothing was unpacked. {CONVERT}"
        )


def _check_tensors(path: Path, loaded: object, *, max_bytes: int) -> dict[str, torch.Tensor]:
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a dictionary of tensors by name, found {type(loaded).__name__}. {CONVERT}")
    total = 0
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{path}: expected one tensor for each name, found {type(tensor).__name__} at {name!r}. {CONVERT}"
            )
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise InputError(f"{path}: tensor {name!r} is not a plain dense tensor ({tensor.layout}). {CONVERT}")
        total += tensor.numel() * tensor.element_size()
    if total > max_bytes:
        raise InputError(f"{path}: refused: its tensors claim {total:,} bytes, far more than the size of the file")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _unreadable(path: Path, error: Exception) -> InputError:
    text = str(error)
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in text:
        match = re.search(r"GLOBAL ([\w.]+)", text)
        reason = f"it refers to {match[1]}" if match else "it contains more than tensors"
        return InputError(f"{path}: refused: {reason}, or is damaged; nothing in it was executed. {CONVERT}")
    reason = next(iter(text.splitlines()), type(error).__name__)
    return InputError(f"{path}: cannot be read ({reason}): damaged or cut short; download or copy it again")


def _plan_shards(tensors: Mapping[str, torch.Tensor], *, shard_bytes: int) -> dict[str, list[str]]:
    """Assign the sorted tensor names to files of at most `shard_bytes`, one tensor at least."""
    groups: list[list[str]] = [[]]
    size = 0
    for name in sorted(tensors):
        tensor_bytes = tensors[name].numel() * tensors[name].element_size()
        if groups[-1] and size + tensor_bytes > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += tensor_bytes
    if len(groups) == 1:
        return {SAFETENSORS: groups[0]}
    return {f"model-{i:05d}-of-{len(groups):05d}.safetensors": names for i, names in enumerate(groups, start=1)}


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors to a file; those that share memory are written as copies."""
    ready: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().to("cpu").contiguous()
        address = plain.untyped_storage().data_ptr()
        ready[name] = plain.clone() if address in storages else plain  # the format does not support tied tensors
        storages.add(address)
    path.touch()
    mode = path.stat().st_mode
    save_file(ready, path, metadata={"format": "pt"})
    path.chmod(mode)  # safetensors replaces the file by one that only its owner may read


def weight_files(folder: Path) -> set[str]:
    """Return the files of a folder with the names of weight files, whether or not Regard wrote them."""
    return {name for name in os.listdir(folder) if OUR_WEIGHTS.fullmatch(name)} if folder.is_dir() else set()


def checksum(path: Path) -> str:
    """Return the checksum of a file as `checksums.json` lists it."""
    return f"sha256:{sha256_of(path)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
