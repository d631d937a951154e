"""A file of texts to a file of vectors: `embed_file`, which can be killed at any moment and continued.

Reading order: job, texts, manifest, partial, blocks, outputs, finished. Knows nothing of the command line.
"""

from __future__ import annotations

from regard.inference.embedding.bulk import EmbedProgress, EmbedResult, embed_file

__all__ = ["EmbedProgress", "EmbedResult", "embed_file"]
