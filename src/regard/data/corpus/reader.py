"""A finished corpus: any sentence and any document at once, from memory-mapped shards.

A shard is mapped when it is first asked for, and processes that open the same corpus share its pages.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus.folder import (
    MANIFEST,
    TOKENIZER,
    CorpusManifest,
    shard_files,
    shard_folder,
    tokenizer_digest,
    tokenizer_paths,
)
from regard.data.corpus.shards import REMEDY, CorpusCounts, Ids, Shard, token_type
from regard.errors import InputError
from regard.files.checksums import Verify, find_damage
from regard.text import Tokenizer

__all__ = ["Corpus"]


class Corpus:
    """Documents of sentences of token ids, in the order of the sources; made by `open`. Its length is in documents.

    Arrays are read-only views of the files: copy what is to be changed. Pickling keeps the folder, not the arrays.
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
        self._first_sentence = [0, *accumulate(shard.counts.sentences for shard in manifest.shards)]
        self._open: list[Shard | None] = [None] * len(manifest.shards)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, verify: Verify = "auto") -> Corpus:
        """Open what `build_corpus` made. InputError names a file that is missing or damaged.

        `verify` says when the SHA-256 of a file is computed: "auto" unless it was before and size and modification time
        are still the same, "always", or "never", which compares sizes only.
        """
        folder = Path(folder).absolute()
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder} is no corpus: it has no {MANIFEST}; build_corpus makes one from text files")
        corpus = cls(folder, CorpusManifest.read(folder))
        files = shard_files(corpus._records) | tokenizer_paths(corpus.manifest)
        for name, what in find_damage(folder, files, verify=verify).items():
            raise InputError(f"{folder / name} {what}; {REMEDY}")
        if verify != "never" and tokenizer_digest(corpus.tokenizer) != corpus.manifest.tokenizer:
            raise InputError(f"{folder / TOKENIZER} is not the tokenizer of this corpus; {REMEDY}")
        return corpus

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What the ids are those of."""
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
        """The arrays of one shard, for who wants more than one sentence at a time."""
        found = self._open[number]
        if found is None:
            folder = shard_folder(self.folder, number)
            found = self._open[number] = Shard.open(folder, self._records[number], dtype=self.dtype)
        return found

    def sentence(self, number: int) -> Ids:
        """The ids of a sentence; sentences are numbered through the whole corpus."""
        at, place = _find(self._first_sentence, number, "sentence")
        shard = self.shard(at)
        return shard.tokens[shard.sentences[place] : shard.sentences[place + 1]]

    def document(self, number: int) -> list[Ids]:
        """The sentences of a document."""
        at, place = _find(self._first_document, number, "document")
        shard = self.shard(at)
        starts = shard.sentences[shard.documents[place] : shard.documents[place + 1] + 1].tolist()
        return [shard.tokens[start:stop] for start, stop in pairwise(starts)]

    def text(self, number: int) -> Ids:
        """The ids of a document in one piece."""
        at, place = _find(self._first_document, number, "document")
        shard = self.shard(at)
        first, last = shard.documents[place], shard.documents[place + 1]
        return shard.tokens[shard.sentences[first] : shard.sentences[last]]

    def sentences_of(self, number: int) -> range:
        """The numbers of a document's sentences."""
        at, place = _find(self._first_document, number, "document")
        documents, before = self.shard(at).documents, self._first_sentence[at]
        return range(before + int(documents[place]), before + int(documents[place + 1]))

    def document_of(self, number: int) -> int:
        """The number of the document that a sentence is in."""
        at, place = _find(self._first_sentence, number, "sentence")
        return self._first_document[at] + int(np.searchsorted(self.shard(at).documents, place, side="right")) - 1

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key != "tokenizer"}
        return state | {"_open": [None] * len(self._records)}

    def __repr__(self) -> str:
        return (
            f"Corpus({str(self.folder)!r}, documents={self.documents:,}, sentences={self.sentences:,}, "
            f"tokens={self.tokens:,})"
        )


def _find(firsts: list[int], number: int, what: str) -> tuple[int, int]:
    """The shard of a number and its place there."""
    number = operator.index(number)
    if not 0 <= number < firsts[-1]:
        raise IndexError(f"no {what} {number}: they are numbered from 0 to {firsts[-1] - 1}")
    at = bisect_right(firsts, number) - 1
    return at, number - firsts[at]
