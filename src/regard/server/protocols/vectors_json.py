"""Vectors as JSON and base64: float32 numbers with the nine digits that identify them, formatted at once."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError


def read_vectors(data: bytes, width: int) -> NDArray[np.float32]:
    """The vectors (n, width) in a reply of a model."""
    vectors = np.frombuffer(data, dtype=np.float32).reshape(-1, width)
    if not np.isfinite(vectors).all():
        raise RegardError(
            "the model computed NaN or infinity, which JSON cannot represent; its checkpoint may be damaged"
        )
    return vectors


def json_rows(vectors: NDArray[np.float32]) -> list[str]:
    """The JSON list of each vector."""
    form = f"[{','.join(['%.9g'] * vectors.shape[1])}]"
    return [form % tuple(row) for row in vectors.tolist()]


def base64_rows(vectors: NDArray[np.float32]) -> list[str]:
    """The little-endian bytes of each vector in base64, as JSON strings."""
    return [f'"{base64.b64encode(row.astype("<f4").tobytes()).decode()}"' for row in vectors]
