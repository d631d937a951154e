"""Static embeddings: a table of vectors whose mean over the tokens of a text is its vector, without a Transformer.

Two kinds of folders are read: those of sentence-transformers (its module StaticEmbedding) and of model2vec, where a
token may share its vector with others (`mapping`) and has a weight (`weights`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.checkpoints.files import read_tensors
from regard.errors import InputError
from regard.files.json_files import read_json
from regard.nn.masks import Layout


@dataclass(frozen=True)
class StaticConfig:
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int = 0
    family: str = "static-embedding"


class StaticEmbedding(nn.Module):
    """`states(ids, layout)` are the vectors of the tokens alone, as layer 0 of a Transformer's states."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.config = StaticConfig(*vectors.shape)
        self.embedding = nn.Embedding.from_pretrained(vectors)  # type: ignore[no-untyped-call]

    def forward(self, ids: Tensor, layout: Layout) -> Tensor:
        vectors: Tensor = self.embedding(ids)
        return vectors

    def states(self, ids: Tensor, layout: Layout) -> Iterator[Tensor]:
        yield self(ids, layout)


def is_model2vec(folder: Path) -> bool:
    path = folder / "config.json"
    return path.is_file() and read_json(path).get("model_type") == "model2vec"


def read_static_embedding(folder: Path) -> StaticEmbedding:
    """Read the vectors of all tokens, in float32."""
    tensors = read_tensors(folder)
    unknown = sorted(tensors.keys() - {"embedding.weight", "embeddings", "mapping", "weights"})
    vectors = tensors.get("embedding.weight", tensors.get("embeddings"))
    if vectors is None or vectors.ndim != 2 or not vectors.is_floating_point() or unknown:
        found = ", ".join(f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in sorted(tensors.items()))
        raise InputError(
            f"{folder}: expected a floating-point matrix embedding.weight or embeddings, and at most mapping and "
            f"weights; found {found[:300]}"
        )
    mapping, weights, vectors = tensors.get("mapping"), tensors.get("weights"), vectors.float()
    if mapping is not None:
        if mapping.is_floating_point() or mapping.ndim != 1 or not _is_below(mapping, len(vectors)):
            raise InputError(f"{folder}: mapping names rows that the {len(vectors)} rows of embeddings do not have")
        vectors = vectors[mapping.long()]
    if weights is not None:
        if weights.shape != vectors.shape[:1]:
            raise InputError(f"{folder}: there are {len(weights)} weights for {len(vectors)} tokens")
        vectors = vectors * weights.float()[:, None]
    return StaticEmbedding(vectors.contiguous().to(torch.float32))


def _is_below(mapping: Tensor, count: int) -> bool:
    return mapping.is_meta or bool((mapping < count).all())  # an outline has no values
