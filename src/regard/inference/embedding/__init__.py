"""Embedding: the engine (texts to vectors), the scikit-learn transformer `Embedder`, and bulk jobs from file to file.

Reading order: embedder, bulk, shards, outputs.
"""

from __future__ import annotations

from regard.inference.embedding.bulk import EmbedProgress, EmbedResult, embed_events, embed_file

__all__ = ["EmbedProgress", "EmbedResult", "embed_events", "embed_file"]
