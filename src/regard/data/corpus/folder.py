"""The folder of a corpus: what lies in it, what of it can be kept, and what has no place there.

Knows names and records. Knows no text and no tokenizer beyond where it lies.

    manifest.json   what the corpus was built from; lists the shards once it is finished
    report.json     counts and speed of the build
    tokenizer/      as Tokenizer.open reads it
    shard-000000/   and so on; see `shards`
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from regard.data.corpus.manifest import MANIFEST, CorpusManifest
from regard.data.corpus.report import REPORT
from regard.data.corpus.shards import DOCUMENTS, RECORD, SENTENCES, TOKENS, ShardRecord, read_record
from regard.errors import InputError, RegardError
from regard.files.checksums import Verify, find_damage
from regard.files.folder_lock import LOCK
from regard.files.output_folder import foreign_entries, remove_files
from regard.text.tokenizer import TOKENIZER_FILES

__all__ = [
    "TOKENIZER",
    "begin",
    "clear",
    "leave",
    "refuse_foreign_files",
    "shard_files",
    "shard_folder",
    "tokenizer_paths",
]

TOKENIZER = "tokenizer"
SHARD_FILES = (TOKENS, SENTENCES, DOCUMENTS, RECORD)
SHARD = re.compile(r"shard-(\d{6,})")
OURS = re.compile(rf"{MANIFEST}|{REPORT}|{LOCK}|{TOKENIZER}|{SHARD.pattern}|\..+\.partial(\.\w+)?")


def shard_folder(folder: Path, number: int) -> Path:
    """Where a corpus keeps a shard."""
    return folder / f"shard-{number:06d}"


def shard_files(records: Iterable[ShardRecord]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file of the shards, by its path in the corpus."""
    return {
        f"shard-{number:06d}/{name}": file
        for number, record in enumerate(records)
        for name, file in record.files.items()
    }


def tokenizer_paths(manifest: CorpusManifest) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file of the tokenizer, by its path in the corpus; older corpora do not know them."""
    return {f"{TOKENIZER}/{name}": file for name, file in manifest.tokenizer_files.items()}


def refuse_foreign_files(folder: Path) -> None:
    """InputError where the folder holds what is not of a corpus: it may be somebody's work.

    The manifest is the first file of a corpus, so that what lies in a folder without one is not Regard's.
    """
    present = foreign_entries(folder)
    strange = [name for name in present if MANIFEST not in present or not OURS.fullmatch(name)]
    if strange:
        raise InputError(f"{folder} is in the way: it holds {strange[0]!r}; move it, or choose another folder")
    if present and not _numbers(folder):  # then nothing but the manifest shows that it is a corpus
        try:
            CorpusManifest.read(folder)
        except InputError as error:
            raise InputError(f"{folder} is in the way: {error}. Move it, or choose another folder") from None


def begin(
    folder: Path, manifest: CorpusManifest, *, restart: bool, verify: Verify = "auto", on_damaged: Callable[[str], None]
) -> tuple[list[ShardRecord], bool]:
    """The shards that are there and belong to this manifest, and whether they are all; never another's.

    A shard that is damaged is described to `on_damaged`, and is no longer there, like those behind it.
    """
    remedy = "Use another folder, or throw that corpus away: restart=True, or delete the folder"
    try:
        old = None if restart or not (folder / MANIFEST).exists() else CorpusManifest.read(folder)
    except InputError as error:
        raise InputError(f"{folder} holds a corpus, but {error}. {remedy}") from None
    if old is None or not _numbers(folder):
        clear(folder)
        manifest.write(folder)
        return [], False
    if changed := old.differences(manifest):
        raise InputError(f"{folder} holds another corpus: {'; '.join(changed)}. {remedy}")
    whole = _whole(folder, old, verify, on_damaged)
    if old.shards is not None and list(old.shards) == whole:
        return whole, True
    # Something of it is missing or damaged: what is good up to there stays.
    for number in range(len(whole), 1 + max(_numbers(folder))):
        remove_files(folder, [f"{shard_folder(folder, number).name}/{name}" for name in SHARD_FILES])
    manifest.write(folder)
    return whole, False


def clear(folder: Path) -> None:
    """Throw the corpus away, file by file; the lock stays, and so does what someone else has put there."""
    shards = [f"{shard_folder(folder, number).name}/{name}" for number in _numbers(folder) for name in SHARD_FILES]
    tokenizer = [f"{TOKENIZER}/{name}" for name in TOKENIZER_FILES]
    if not remove_files(folder, [*shards, *tokenizer, REPORT, MANIFEST]):  # in this order: what is left stays known
        raise RegardError(f"{folder}: the earlier corpus cannot be deleted; check that you may write there")


def leave(folder: Path) -> None:
    """Give the folder back; where nothing is finished, nothing stays."""
    if not _numbers(folder):
        clear(folder)
    (folder / LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # it holds a corpus, or something that is not ours to remove
        folder.rmdir()


def _whole(
    folder: Path, manifest: CorpusManifest, verify: Verify, on_damaged: Callable[[str], None]
) -> list[ShardRecord]:
    """The records of the shards from the first to the last before a missing or damaged one."""
    found: list[ShardRecord] = []
    try:
        while (place := shard_folder(folder, len(found))).is_dir():
            record = read_record(place)
            if manifest.shards is not None and record not in manifest.shards[len(found) : len(found) + 1]:
                raise InputError(f"{place / RECORD} is damaged: it is not what {MANIFEST} says of this shard")
            found.append(record)
    except InputError as error:
        on_damaged(str(error))
    damage = find_damage(folder, shard_files(found), verify=verify)
    for name, what in damage.items():
        on_damaged(f"{folder / name} {what}")
    return found[: min((int(SHARD.match(name)[1]) for name in damage), default=len(found))]  # type: ignore[index]


def _numbers(folder: Path) -> list[int]:
    return [int(match[1]) for name in os.listdir(folder) if (match := SHARD.fullmatch(name))]
