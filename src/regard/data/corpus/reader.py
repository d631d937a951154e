"""Random access to the documents of a finished corpus, from memory-mapped shards.

A shard is mapped on first access; processes that open the same corpus share its memory pages.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from regard.data.corpus.folder import (
    MANIFEST,
    REMEDY,
    TOKENIZER,
    CorpusCounts,
    CorpusManifest,
    Ids,
    Shard,
    shard_files,
    shard_folder,
    token_type,
    tokenizer_digest,
    tokenizer_paths,
)
from regard.errors import InputError
from regard.files.checksums import Verify, find_damage
from regard.text import Tokenizer


class Corpus:
    """A sequence of documents, which are lists of sentences of token ids. Create it with `open`.

    Arrays are read-only views of the files; copy them to change them. Pickling stores the folder, not the arrays.
    """

    def __init__(self, folder: Path, manifest: CorpusManifest) -> None:
        if manifest.shards is None:
            raise InputError(f"{folder} is an unfinished corpus; build it again with the same settings to finish it")
        self.folder = folder
        self.manifest = manifest
        self.counts = sum((shard.counts for shard in manifest.shards), CorpusCounts())
        self.dtype = token_type(manifest.vocabulary)
        self._records = manifest.shards
        self._first_document = [0, *accumulate(shard.counts.documents for shard in manifest.shards)]
        self._open: list[Shard | None] = [None] * len(manifest.shards)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, verify: Verify = "auto") -> Corpus:
        """Open a corpus made by `build_corpus`. Raises InputError that names a missing or damaged file.

        With `verify` "auto", the SHA-256 of a file is checked unless it was checked before and its size and
        modification time are the same; "always" checks every file, and "never" compares sizes only.
        """
        folder = Path(folder).absolute()
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder} is not a corpus: it has no {MANIFEST}; build one with build_corpus")
        corpus = cls(folder, CorpusManifest.read(folder))
        files = shard_files(corpus._records) | tokenizer_paths(corpus.manifest)
        for name, problem in find_damage(folder, files, verify=verify).items():
            raise InputError(f"{folder / name} {problem}; {REMEDY}")
        if verify != "never" and tokenizer_digest(corpus.tokenizer) != corpus.manifest.tokenizer:
            raise InputError(f"{folder / TOKENIZER} is not the tokenizer of this corpus; {REMEDY}")
        return corpus

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the corpus."""
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
            shard = self._open[number] = Shard.open(folder, self._records[number], dtype=self.dtype)
        return shard

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
