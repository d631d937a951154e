"""The record of a finished run, beside its output: OUT.regard.json.

Knows what the run was asked for and the checksum of what it wrote, and so whether the same run asked for again has
anything to do. Knows no texts and no model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.errors import InputError
from regard.files.checksums import sha256_of
from regard.files.disk import atomic_write
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.inference.embedding.manifest import Manifest, differences

__all__ = ["read", "record_path", "remove", "write"]


def record_path(output: Path) -> Path:
    return output.with_name(output.name + ".regard.json")


def write(output: Path, job: Manifest, *, long: int) -> None:
    """Note what `output` is: the vectors of a job in which `long` texts did not fit."""
    record = {"job": dict(job), "long": long, "bytes": output.stat().st_size, "sha256": sha256_of(output)}
    atomic_write(record_path(output), json_bytes(with_checksum(record)))


def read(output: Path, job: Manifest, on_damaged: Callable[[str], None]) -> int | None:
    """How many texts of this job did not fit, where `output` holds its vectors to the bit; None where it does not.

    A record or an output that is not as the same job left it is described to `on_damaged`.
    """
    path = record_path(output)
    if not path.is_file() or not output.is_file():
        return None
    try:
        record = read_checked_json(path)
    except InputError as error:
        on_damaged(f"{error}; the texts are embedded again")
        return None
    found, long = record.get("job"), record.get("long")
    if not isinstance(found, dict) or not isinstance(long, int) or differences(found, job):
        return None
    if output.stat().st_size != record.get("bytes") or sha256_of(output) != record.get("sha256"):
        on_damaged(f"{output} is not what the finished run wrote: damaged or changed; the texts are embedded again")
        return None
    return long


def remove(output: Path) -> None:
    """Before another output takes the place of the one that the record is of."""
    record_path(output).unlink(missing_ok=True)
