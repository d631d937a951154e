"""Single output files: Regard replaces a file only if it wrote it, unless it is forced to, and follows no link.

Pages, SVG, PNG and JSON documents have a mark of Regard near their beginning. Files of other formats have a record
beside them, FILE.regard.json, with their checksum: a file that was changed since is no longer Regard's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.files.checksums import sha256_of
from regard.files.disk import atomic_write, replace_file
from regard.files.json_files import json_bytes, read_checked_json, with_checksum

GENERATOR = "Regard"
HTML_MARK = f'<meta name="generator" content="{GENERATOR}">'
SVG_MARK = f'<svg data-generator="{GENERATOR}"'
PNG_MARK = f"Software\0{GENERATOR}"
JSON_MARK = f'"generator": "{GENERATOR}"'
MARKS = {".html": HTML_MARK, ".htm": HTML_MARK, ".svg": SVG_MARK, ".png": PNG_MARK, ".json": JSON_MARK}
MARK_WITHIN = 1024  # bytes


def record_path(output: Path) -> Path:
    """Return where the record of an output is: FILE.regard.json."""
    return output.with_name(output.name + ".regard.json")


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Raise InputError if the last part of an output's path is a symbolic link."""
    if os.path.islink(os.fspath(path).rstrip("/") or "/"):
        raise InputError(f"{path} is a symbolic link, which is not followed; name its target, or remove the link")


def check_output_file(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise InputError for a link, for what is no regular file, and for a file without a mark or record of Regard.

    It reads little, so that it can precede the work; `replace_output` also compares checksums. `force` allows a file
    of others, but no link.
    """
    path = Path(path)
    for written in (path, record_path(path)):
        refuse_link(written)
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path}: cannot be written: it is not a regular file; give the name of a new file")
    if force:
        return
    mark = MARKS.get(path.suffix.lower())
    if mark is not None:
        with path.open("rb") as file:
            known = mark.encode() in file.read(MARK_WITHIN)
    else:
        known = record_path(path).is_file()
    if not known:
        raise InputError(f"{path} exists, and Regard did not write it; choose another name, or replace it: --force")


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of an output that exists. Raises InputError if there is none, or if the file has changed.

    It is empty if a save ended between the record and the file: the file is the one that was to be replaced.
    """
    where = record_path(path)
    remedy = f"move {path}, or replace it: --force"
    try:
        record: dict[str, Any] = read_checked_json(where)
    except InputError as error:
        raise InputError(f"{error}; so nobody knows whether Regard wrote {path}: {remedy}") from None
    found = sha256_of(path)
    if found not in (record.get("sha256"), record.get("replaces")):
        raise InputError(f"{path} is not what Regard wrote, it was damaged or changed since; {remedy}")
    return record if found == record.get("sha256") else {}


@contextmanager
def replace_output(
    path: str | os.PathLike[str], *, force: bool = False, record: Mapping[str, object] | None = None
) -> Iterator[Path]:
    """Yield a temporary path whose file replaces the output on success, as `replace_file` does.

    A file that Regard did not write is refused before the body runs, unless `force`. The output gets a record, with the
    entries of `record`, unless its format has a mark.
    """
    path = Path(path)
    check_output_file(path, force=force)
    marked = path.suffix.lower() in MARKS
    if not marked and not force and path.exists():
        read_record(path)
    with replace_file(path) as temporary:
        yield temporary
        if not marked:
            sums: dict[str, object] = {"bytes": temporary.stat().st_size, "sha256": sha256_of(temporary)}
            if path.exists() and (before := sha256_of(path)) != sums["sha256"]:
                sums["replaces"] = before
            atomic_write(record_path(path), json_bytes(with_checksum({**(record or {}), **sums})))
