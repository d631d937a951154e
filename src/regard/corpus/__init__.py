"""Text to pretrain on: files to documents, sentences, a vocabulary, and token shards with random access.

Knows text files and tokenizers; knows no tensor, no model and no objective. Reading order: documents, sentences,
vocabulary, encoder, shards, manifest, report, folder, build, reader.
"""

from __future__ import annotations

from regard.corpus.build import build_corpus
from regard.corpus.documents import Document, read_documents
from regard.corpus.reader import Corpus
from regard.corpus.report import Progress, Report
from regard.corpus.shards import Counts, Shard
from regard.corpus.vocabulary import train_tokenizer

__all__ = [
    "Corpus",
    "Counts",
    "Document",
    "Progress",
    "Report",
    "Shard",
    "build_corpus",
    "read_documents",
    "train_tokenizer",
]
