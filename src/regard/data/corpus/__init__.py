"""Pretraining corpora: text files to documents, sentences, a vocabulary, and token shards with random access.

The modules build on each other in this order: documents, sentences, vocabulary, folder, build, reader.
"""

from __future__ import annotations

from regard.data.corpus.build import build_corpus, corpus_events
from regard.data.corpus.documents import Document, read_documents
from regard.data.corpus.folder import CorpusCounts, CorpusProgress, CorpusReport, Shard
from regard.data.corpus.reader import Corpus
from regard.data.corpus.vocabulary import train_tokenizer

__all__ = [
    "Corpus",
    "CorpusCounts",
    "CorpusProgress",
    "CorpusReport",
    "Document",
    "Shard",
    "build_corpus",
    "corpus_events",
    "read_documents",
    "train_tokenizer",
]
