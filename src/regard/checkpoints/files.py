"""Model folders on the disk: tensors in from what others wrote, one complete and checked folder out.

Knows files, tensors and the names that Hugging Face gives to weight files. Knows no model, and no tensor by name.
Everything read here may come from a stranger: nothing in it is executed, and what is wrong with it is said by name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from regard.checkpoints.index import INDEX, SAFETENSORS, WEIGHTS, preferred_weights, read_index
from regard.checkpoints.pickles import read_pickle
from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, sha256_of, stays_inside, written_files
from regard.files.disk import finish_save, replace_folder
from regard.files.file_input import check_regular
from regard.files.json_files import json_bytes, read_json

__all__ = ["checksums", "read_json", "read_tensors", "refuse_foreign_files", "verify", "write_folder"]

OUR_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
AGAIN = "damaged or cut short; download or copy it again"


def read_tensors(folder: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Every tensor of a model folder by its name, on the CPU, memory mapped where the format allows it.

    Safetensors win over pickles and a single file over shards. With a `checksums.json` every file it lists is verified.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder that holds config.json and the weights")
    finish_save(folder)
    present = os.listdir(folder)
    chosen = preferred_weights(present)
    if chosen is None:
        raise InputError(
            f"{folder}: no weights that can be read: expected one of {', '.join(WEIGHTS)}; found "
            f"{', '.join(sorted(present)[:12]) or 'nothing'}. Convert other formats to {SAFETENSORS}"
        )
    listed = verify(folder)
    if listed and chosen not in listed:
        raise InputError(f"{folder / chosen}: not listed in {CHECKSUMS}; remove one of the two")
    return _read_shards(folder / chosen) if chosen.endswith(INDEX) else _read_file(folder / chosen)


def verify(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Compare a folder with its `checksums.json`, and return what that lists: nothing where there is none."""
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
                f"{path}: missing, though {CHECKSUMS} lists it; download or copy it again, or {manifest} if that is"
                " damaged"
            )
        if _checksum(path) != expected:
            raise InputError(
                f"{path}: does not match {CHECKSUMS}: {AGAIN}. If it was changed on purpose, delete {manifest}"
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
    """Write a complete model folder: `tensors` as safetensors, `files` by their names, and the checksums of all.

    The folder changes all at once or not at all. Where it exists, files of an earlier save that this one does not
    hold are removed and all others stay. An earlier save is what `checksums.json` lists: another file that is in the
    way is refused, unless it is the same or `overwrite` says that whatever has these names is Regard's own. The same
    tensors and files always give the same bytes.
    """
    for name in files:
        if not stays_inside(name) or name[0] == "." or name == CHECKSUMS or OUR_WEIGHTS.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a file beside the weights")
    shards = _plan_shards(tensors, shard_bytes=shard_bytes)
    contents = dict(files)
    if len(shards) > 1:
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        where = {name: shard for shard, names in shards.items() for name in names}
        contents[SAFETENSORS + INDEX] = json_bytes({"metadata": {"total_size": total}, "weight_map": where})
    finish_save(folder)
    new = {*contents, *shards}
    if not overwrite:
        refuse_foreign_files(folder, contents)  # now, and not after large weights are written
    earlier = written_files(folder) | (_weight_files(Path(folder)) if overwrite else set())
    with replace_folder(folder, remove=sorted(earlier - new - {CHECKSUMS})) as staging:
        try:
            for shard, names in shards.items():
                _write_safetensors(staging / shard, {name: tensors[name] for name in names})
            for name, data in contents.items():
                place = staging / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            sums = {name: _checksum(staging / name) for name in new}
            (staging / CHECKSUMS).write_bytes(json_bytes(sums))
            if not overwrite:
                refuse_foreign_files(folder, dict.fromkeys(_weight_files(Path(folder))), sums=sums)
        except (SafetensorError, OSError) as error:  # SafetensorError: a full disk too
            raise RegardError(
                f"{folder}: cannot be written: {error}; what was there is unchanged. Make room, or write elsewhere"
            ) from error


def refuse_foreign_files(
    folder: str | os.PathLike[str], files: Mapping[str, bytes | None], *, sums: Mapping[str, str] | None = None
) -> None:
    """InputError where one of `files` is in the folder and `write_folder` did not put it there.

    A file with the same content, or with the checksum in `sums`, is no obstacle.
    """
    place = Path(folder)
    for name in sorted({*files, CHECKSUMS} - written_files(place)):
        path, content = place / name, files.get(name)
        if not os.path.lexists(path) or (content is not None and path.is_file() and path.read_bytes() == content):
            continue
        if path.is_file() and (sums or {}).get(name) == _checksum(path):
            continue
        raise InputError(
            f"{path}: this file is in the way: {CHECKSUMS} does not list it, so Regard may not have written it; "
            "move it, or write into another folder"
        )


def _read_shards(path: Path) -> dict[str, torch.Tensor]:
    index = read_index(path)
    shards: dict[str, list[str]] = {}
    for name, shard in index.items():
        shards.setdefault(shard, []).append(name)
    missing = [shard for shard in shards if not (path.parent / shard).is_file()]
    if missing:
        raise InputError(f"{path}: the folder lacks {_some(missing)}, named here; download or copy what is missing")
    tensors: dict[str, torch.Tensor] = {}
    for shard, names in shards.items():
        _refuse_link_outside(path.parent / shard)
        held = _read_file(path.parent / shard)
        absent = [name for name in names if name not in held]
        if absent:
            raise InputError(f"{path.parent / shard}: does not hold {_some(absent)}, which {path.name} places there")
        tensors |= {name: held[name] for name in names}
    return tensors


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    try:
        check_regular(path)  # the libraries below would wait for the writer of a FIFO
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a file of weights") from None
    if path.suffix != ".safetensors":
        return read_pickle(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except Exception as error:  # besides its own error: a type of number that this torch does not have
        raise InputError(f"{path}: cannot be read as safetensors ({error}): {AGAIN}") from error


def _refuse_link_outside(path: Path) -> None:
    """An index names files, so a link among them is a stranger's choice; the hub's cache alone is made of links."""
    folder, real = path.parent.resolve(), path.resolve()
    in_cache = folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--")
    if not real.is_relative_to(folder.parents[2] if in_cache else folder):
        raise InputError(f"{path}: refused: a link that leaves the folder; put a copy of the file there")


def _plan_shards(tensors: Mapping[str, torch.Tensor], *, shard_bytes: int) -> dict[str, list[str]]:
    """File names and the tensors in each: names in order, a new file before one would pass `shard_bytes`."""
    groups: list[list[str]] = [[]]
    size = 0
    for name in sorted(tensors):
        more = tensors[name].numel() * tensors[name].element_size()
        if groups[-1] and size + more > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += more
    if len(groups) == 1:
        return {SAFETENSORS: groups[0]}
    return {f"model-{i:05d}-of-{len(groups):05d}.safetensors": names for i, names in enumerate(groups, start=1)}


def _write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    ready: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().to("cpu").contiguous()
        memory = plain.untyped_storage().data_ptr()
        ready[name] = plain.clone() if memory in seen else plain  # tied tensors: the format knows no sharing
        seen.add(memory)
    path.touch()
    mode = path.stat().st_mode
    save_file(ready, path, metadata={"format": "pt"})
    path.chmod(mode)  # safetensors puts a file there that only its owner may read


def _weight_files(folder: Path) -> set[str]:
    """The files of a folder that have the names of weights, whoever wrote them."""
    return {name for name in os.listdir(folder) if OUR_WEIGHTS.fullmatch(name)} if folder.is_dir() else set()


def checksums(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A `checksums.json` of some files, for who writes a folder without weights that `verify` should know."""
    listed = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    return {CHECKSUMS: json_bytes(listed)}


def _checksum(path: Path) -> str:
    return f"sha256:{sha256_of(path)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
