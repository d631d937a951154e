"""Records of bulk embedding: what unfinished or finished work belongs to, and whether a repeated run has work to do.

A record names the texts, the files of the model and the settings. A finished run leaves it in OUT.regard.json together
with the checksum of its output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.files.checksums import CHECKSUMS, sha256_of, sha256_of_all
from regard.files.disk import atomic_write
from regard.files.json_files import json_bytes, read_checked_json, read_json, with_checksum
from regard.files.output_folder import describe_changes

Manifest = Mapping[str, object]

FORMAT = 2  # format 1 identified large files by samples
PARTS = {"format": "Regard's version", "input": "the texts", "model": "the model's files"}


def manifest(*, texts: str, model: LoadedModel, continuable: bool, settings: Mapping[str, object]) -> Manifest:
    """The record of a job. A model is identified by its files, or by its weights if these may differ from the files."""
    if model.folder is None or model.changeable:
        identity = _weights_digest(model)
    else:
        identity = fingerprint(model.folder, verified=True)
    return {
        "format": FORMAT,
        "continuable": continuable,
        "input": texts,
        "model": identity,
        "settings": dict(settings),
    }


def differences(old: Manifest, new: Manifest) -> list[str]:
    """How an old record differs from a new one, in words; empty if the work can be continued."""
    changed = [f"{words} changed" for key, words in PARTS.items() if old.get(key) != new[key]]
    before, now = old.get("settings"), new["settings"]
    assert isinstance(now, dict)
    if not isinstance(before, dict):
        return changed or ["the record is damaged"]
    return changed + describe_changes(before, now)


def fingerprint(folder: Path, *, verified: bool = False) -> str:
    """A hash of the contents of a model folder: different models have different fingerprints.

    `verified`: loading the model has just compared its files with checksums.json, so these are not hashed again.
    """
    names = [path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin")]
    paths = [path for path in sorted([*names, folder / "1_Pooling" / "config.json"]) if path.is_file()]
    listed = read_json(folder / CHECKSUMS) if verified and (folder / CHECKSUMS).is_file() else {}
    known = {folder / name: str(value).removeprefix("sha256:") for name, value in listed.items()}
    unknown = [path for path in paths if path not in known]
    hashes = known | dict(zip(unknown, sha256_of_all(unknown), strict=True))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(folder).as_posix()}:{hashes[path]}\n".encode())
    return digest.hexdigest()


def _weights_digest(loaded: LoadedModel) -> str:
    digest = hashlib.sha256()
    for name, tensor in loaded.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    for name, content in sorted(loaded.tokenizer.files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()


def record_path(output: Path) -> Path:
    """Where a finished run leaves its record."""
    return output.with_name(output.name + ".regard.json")


def write_finished(output: Path, job: Manifest, *, long: int) -> None:
    """Record that `output` holds the vectors of a job in which `long` texts did not fit."""
    record = {"job": dict(job), "long": long, "bytes": output.stat().st_size, "sha256": sha256_of(output)}
    atomic_write(record_path(output), json_bytes(with_checksum(record)))


def read_finished(output: Path, job: Manifest, on_damaged: Callable[[str], None]) -> int | None:
    """The number of texts of this job that did not fit, if `output` holds its vectors unchanged; None otherwise.

    A damaged record or output is reported to `on_damaged`.
    """
    path = record_path(output)
    if not path.is_file() or not output.is_file():
        return None
    try:
        record = read_checked_json(path)
    except InputError as error:
        on_damaged(f"{error}; the texts are embedded again")
        return None
    recorded, long = record.get("job"), record.get("long")
    if not isinstance(recorded, dict) or not isinstance(long, int) or differences(recorded, job):
        return None
    if output.stat().st_size != record.get("bytes") or sha256_of(output) != record.get("sha256"):
        on_damaged(f"{output} is not what the finished run wrote: damaged or changed; the texts are embedded again")
        return None
    return long
