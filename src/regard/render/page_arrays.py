"""Arrays as base64 text in the data of a page."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

MAX_FLOAT16 = 65504.0


def encode_array(array: NDArray[np.generic]) -> str:
    """The bytes of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def encode_float32(array: NDArray[np.floating]) -> str:
    return encode_array(array.astype("<f4"))


def encode_float16(array: NDArray[np.floating]) -> str:
    """Clipped to the range of float16; infinities, such as masked scores, stay infinite."""
    clipped = np.clip(array, -MAX_FLOAT16, MAX_FLOAT16)
    return encode_array(np.where(np.isfinite(array), clipped, array).astype("<f2"))


def base64_size(count: int) -> int:
    """The number of characters for a number of bytes."""
    return (count + 2) // 3 * 4
