"""DeBERTa's disentangled attention: a score of queries and keys that also reads their relative position.

It is a `score` module of `Attention`, which computes masks, softmax, dropout and recorded maps as for any other score.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.kernels import HALF
from regard.nn.training import Dropout


class RelativePositions(nn.Module):
    """A learned vector per distance between a query and a key, which all layers share; `norm` follows the table.

    The table has 2 `span` rows, for distances from -span to span - 1; larger ones share the first and the last row. If
    `max_distance` is given, distances of span / 2 or more first share buckets that grow logarithmically up to it.
    """

    def __init__(
        self, width: int, span: int, *, max_distance: int | None = None, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        if max_distance is not None and not 1 <= span // 2 < max_distance - 1:
            raise InputError(
                f"{span} buckets for distances up to {max_distance}; expected 2 or more, below twice the distance"
            )
        self.table = nn.Embedding(2 * span, width)
        self.norm = norm or nn.Identity()
        self.span, self.max_distance = span, max_distance

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """Return vectors (R, W), and for each query and key the index (T, T) of the vector of their distance."""
        position = torch.arange(length, device=self.table.weight.device)
        distance = position[:, None] - position
        if length > self.span:
            return self.norm(self.table.weight), self.rows(distance)
        near = torch.arange(1 - length, length, device=position.device)  # a short text needs few rows of the table
        return self.norm(self.table(self.rows(near))), distance + length - 1

    def rows(self, distance: Tensor) -> Tensor:
        """Return the row of a signed distance (query minus key)."""
        if self.max_distance is not None:
            distance = self.bucket(distance, self.max_distance)
        return (distance + self.span).clamp(0, 2 * self.span - 1)

    def bucket(self, distance: Tensor, max_distance: int) -> Tensor:
        """Return the signed bucket of a signed distance; distances of up to span / 2 have a bucket each."""
        exact = self.span // 2
        # A logarithm in float64 would move the largest distance to the next bucket.
        ratio = torch.log(distance.abs().clamp(min=exact) / exact) / torch.log(torch.tensor((max_distance - 1) / exact))
        far = torch.ceil(ratio * (exact - 1)).long() + exact
        return torch.where(distance.abs() <= exact, distance, far * distance.sign())


class DisentangledScore(nn.Module):
    """q_i . k_j + q_i . K r_ij + k_j . Q r_ij, with r_ij the vector of the distance between i and j (equation 4).

    `terms` has "c2p", content to position, for the second product and "p2c", position to content, for the third.
    Vectors of distances are projected by `key` and `query`, or by `shared`, the projection of the attention.
    """

    def __init__(
        self,
        relative: RelativePositions,
        *,
        terms: Collection[str],
        shared: nn.Module | None = None,
        query: nn.Module | None = None,
        key: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.terms, self.query, self.key = frozenset(terms), query, key
        self.dropout = Dropout(dropout)
        self._relative, self._shared = (relative,), (shared,)  # in tuples: they are registered in the model

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (B, H, T, T) of queries and keys (B, H, T, D), in float32 for those in half precision."""
        vectors, index = self._relative[0](query.shape[2])
        position_query, position_key = self._project(self.dropout(vectors), heads=query.shape[1])
        if query.dtype in HALF:
            query, key = query.float(), key.float()
        scores = query @ key.transpose(-2, -1)
        if position_key is not None:
            scores = scores + (query @ position_key.to(query.dtype)).gather(-1, index.expand(scores.shape))
        if position_query is not None:
            by_key = (key @ position_query.to(key.dtype)).gather(-1, index.T.contiguous().expand(scores.shape))
            scores = scores + by_key.transpose(-2, -1)
        return scores

    def _project(self, vectors: Tensor, *, heads: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the projections of distance vectors to queries and to keys, (H, D, R) each; None without the term."""
        shared = self._shared[0]
        if shared is not None:
            query, key, _ = shared(vectors, vectors)
        else:
            query, key = (None if layer is None else layer(vectors) for layer in (self.query, self.key))

        def by_head(x: Tensor) -> Tensor:
            return x.view(len(x), heads, -1).permute(1, 2, 0)

        return by_head(query) if "p2c" in self.terms else None, by_head(key) if "c2p" in self.terms else None
