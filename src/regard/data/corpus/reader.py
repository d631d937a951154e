"""Random access to the documents of a finished corpus, from memory-mapped shards, and its copy to an object store.

A shard is mapped on first access; processes that open the same corpus share its memory pages. The shards of a corpus on
an object store are fetched into a local cache of bounded size (see `shard_cache`).
"""

from __future__ import annotations

import hashlib
import operator
import os
from bisect import bisect_right
from collections.abc import Generator
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus.folder import (
    DOCUMENTS,
    MANIFEST,
    RECORD,
    REMEDY,
    REPORT,
    SENTENCES,
    TOKENIZER,
    TOKENS,
    CorpusCounts,
    CorpusManifest,
    Ids,
    Shard,
    memory_map,
    shard_files,
    shard_folder,
    token_type,
    tokenizer_digest,
    tokenizer_paths,
)
from regard.data.corpus.shard_cache import CACHE_BYTES, CachedTokens, ShardCache
from regard.errors import InputError
from regard.events import Progress
from regard.files.checksums import Verify, cache_folder, find_damage
from regard.files.durable_folder import RECORD_BYTES, DamagedRecord, FolderRecord
from regard.files.json_files import read_document
from regard.files.storage import Address, is_remote, join, local_path, normalize, read_bytes, remove, upload
from regard.text import Tokenizer


class Corpus:
    """A sequence of documents, which are lists of sentences of token ids. Create it with `open`.

    Arrays are read-only views of the files; copy them to change them. Pickling stores the folder, not the arrays.
    """

    def __init__(
        self, folder: Path, manifest: CorpusManifest, *, address: str | None = None, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self.name = address or str(folder)
        if manifest.shards is None:
            raise InputError(f"{self.name} is an unfinished corpus; build it again with the same settings to finish it")
        files = shard_files(manifest.shards)
        self.cache = None if address is None else ShardCache(address, folder, files, cache_bytes)
        self.folder = folder
        self.manifest = manifest
        self.counts = sum((shard.counts for shard in manifest.shards), CorpusCounts())
        self.dtype = token_type(manifest.vocabulary)
        self._records = manifest.shards
        self._first_document = [0, *accumulate(shard.counts.documents for shard in manifest.shards)]
        self._open: list[Shard | None] = [None] * len(manifest.shards)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, verify: Verify = "auto", cache_bytes: int = CACHE_BYTES) -> Corpus:
        """Open a corpus made by `build_corpus`. Raises InputError that names a missing or damaged file.

        On an object store, only the manifest and the tokenizer are read here. Shards are fetched when they are needed,
        compared with their SHA-256, and kept in the user's cache folder, which holds at most `cache_bytes` of them.

        With `verify` "auto", the SHA-256 of a file is checked unless it was checked before and its size and
        modification time are the same; "always" checks every file, and "never" compares sizes only.
        """
        if is_remote(folder):
            return cls._open_remote(normalize(folder), cache_bytes)
        folder = local_path(folder).absolute()
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder} is not a corpus: it has no {MANIFEST}; build one with build_corpus")
        corpus = cls(folder, _parse(read_document(folder / MANIFEST, limit=RECORD_BYTES), folder))
        files = shard_files(corpus._records) | tokenizer_paths(corpus.manifest)
        for name, problem in find_damage(folder, files, verify=verify).items():
            raise InputError(f"{folder / name} {problem}; {REMEDY}")
        if verify != "never" and tokenizer_digest(corpus.tokenizer) != corpus.manifest.tokenizer:
            raise InputError(f"{folder / TOKENIZER} is not the tokenizer of this corpus; {REMEDY}")
        return corpus

    @classmethod
    def _open_remote(cls, address: str, cache_bytes: int) -> Corpus:
        content = read_bytes(join(address, MANIFEST))
        # Of another manifest, the files may differ: each has a folder of its own.
        folder = cache_folder() / "corpora" / hashlib.sha256(content).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        manifest = _parse(content, address)
        corpus = cls(folder, manifest, address=address, cache_bytes=cache_bytes)
        small = ShardCache(address, folder, tokenizer_paths(manifest), CACHE_BYTES)
        for name in small.files:
            small.path(name)
        if tokenizer_digest(corpus.tokenizer) != manifest.tokenizer:
            raise InputError(f"{join(address, TOKENIZER)} is not the tokenizer of this corpus; {REMEDY}")
        return corpus

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.open(self.folder / TOKENIZER)

    @property
    def documents(self) -> int:
        return self.counts.documents

    @property
    def sentences(self) -> int:
        return self.counts.sentences

    @property
    def tokens(self) -> int:
        return self.counts.tokens

    @property
    def shards(self) -> int:
        return len(self._records)

    def __len__(self) -> int:
        return self.counts.documents

    def shard(self, number: int) -> Shard:
        """Return the arrays of one shard, to read many sentences at a time."""
        shard = self._open[number]
        if shard is None:
            folder = shard_folder(self.folder, number)
            if self.cache is not None:
                for name in (SENTENCES, DOCUMENTS, TOKENS):
                    self.cache.path(f"{folder.name}/{name}")
            shard = Shard.open(folder, self._records[number], dtype=self.dtype)
            if self.cache is None:  # else its files are deleted when there is no room for others
                self._open[number] = shard
        return shard

    def tokens_of(self, number: int) -> Ids | CachedTokens:
        """Return the tokens of one shard; those of a corpus on an object store are fetched when they are sliced."""
        if self.cache is None:
            return np.asarray(self.shard(number).tokens)  # a plain array is sliced ten times as fast as a mapped one
        name = f"{shard_folder(Path(), number)}/{TOKENS}"
        return CachedTokens(self.cache, name, self.dtype, 0, self._records[number].counts.tokens)

    def offsets_of(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the offsets of sentences in the tokens of a shard, and of its documents in the sentences."""
        if self.cache is None:
            return self.shard(number).sentences, self.shard(number).documents
        folder = shard_folder(Path(), number)
        sentences, documents = (memory_map(self.cache.path(f"{folder}/{name}")) for name in (SENTENCES, DOCUMENTS))
        return sentences, documents

    def document(self, number: int) -> list[Ids]:
        """Return the sentences of a document; documents are numbered over the whole corpus."""
        number = operator.index(number)
        if not 0 <= number < len(self):
            raise IndexError(f"no document {number}: they are numbered from 0 to {len(self) - 1}")
        shard_number = bisect_right(self._first_document, number) - 1
        index = number - self._first_document[shard_number]
        shard = self.shard(shard_number)
        starts = shard.sentences[shard.documents[index] : shard.documents[index + 1] + 1].tolist()
        return [shard.tokens[start:stop] for start, stop in pairwise(starts)]

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key != "tokenizer"}
        return state | {"_open": [None] * len(self._records)}

    def __repr__(self) -> str:
        return (
            f"Corpus({str(self.folder)!r}, documents={self.documents:,}, sentences={self.sentences:,}, "
            f"tokens={self.tokens:,})"
        )


def _parse(content: bytes, folder: Address) -> CorpusManifest:
    try:
        return CorpusManifest.of(FolderRecord.parse(content, folder, kind="corpus"), folder)
    except DamagedRecord as error:
        raise InputError(f"{error}; restore a copy of it, or build the corpus again") from None


def check_address(address: str) -> None:
    """Raise InputError for an address that is not a folder on an object store."""
    if not is_remote(address) or "/" not in normalize(address).partition("://")[2]:
        raise InputError(f"{address} is not a folder on an object store; expected an address like s3://BUCKET/FOLDER")


def upload_corpus(folder: Path, address: str) -> Generator[Progress]:
    """Copy the files of a corpus. The manifest is removed first and copied last: a corpus with one is complete."""
    check_address(address)
    corpus = Corpus.open(folder)
    records = [f"{shard_folder(Path(), number)}/{RECORD}" for number in range(corpus.shards)]
    names = [*tokenizer_paths(corpus.manifest), *shard_files(corpus.manifest.shards or ()), *records, REPORT, MANIFEST]
    remove(join(address, MANIFEST))
    yield Progress(stage="uploading", done=0, total=len(names), unit="files")
    for number, name in enumerate(names, start=1):
        upload(folder / name, join(address, name))
        yield Progress(stage="uploading", done=number, total=len(names), unit="files")
