"""Copies a finished corpus to an object store, where `Corpus.open` reads it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from regard.data.corpus.folder import MANIFEST, REPORT, shard_files, shard_folder, tokenizer_paths
from regard.data.corpus.folder import RECORD as SHARD_RECORD
from regard.data.corpus.reader import Corpus
from regard.errors import InputError
from regard.events import Progress
from regard.files.storage import is_remote, join, normalize, remove, upload


def check_address(address: str) -> None:
    """Raise InputError for an address that is not a folder on an object store."""
    if not is_remote(address) or "/" not in normalize(address).partition("://")[2]:
        raise InputError(f"{address} is not a folder on an object store; expected an address like s3://BUCKET/FOLDER")


def upload_corpus(folder: Path, address: str) -> Generator[Progress]:
    """Copy the files of a corpus. The manifest is removed first and copied last: a corpus with one is complete."""
    check_address(address)
    corpus = Corpus.open(folder)
    records = [f"{shard_folder(Path(), number)}/{SHARD_RECORD}" for number in range(corpus.shards)]
    names = [*tokenizer_paths(corpus.manifest), *shard_files(corpus.manifest.shards or ()), *records, REPORT, MANIFEST]
    remove(join(address, MANIFEST))
    yield Progress(stage="uploading", done=0, total=len(names), unit="files")
    for number, name in enumerate(names, start=1):
        upload(folder / name, join(address, name))
        yield Progress(stage="uploading", done=number, total=len(names), unit="files")
