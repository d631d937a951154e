"""Arrays and images as base64 text in the data of a page."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import GetPydanticSchema
from pydantic_core import core_schema

MAX_FLOAT16 = 65504.0
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_COLORS = {1: 0, 3: 2, 4: 6}  # channels -> color type: gray, RGB, RGBA


def encode_array(array: NDArray[np.generic]) -> str:
    """The bytes of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def encode_float32(array: NDArray[np.floating]) -> str:
    return encode_array(array.astype("<f4"))


_BASE64 = core_schema.plain_serializer_function_ser_schema(encode_float32, return_schema=core_schema.str_schema())
# A field of a pydantic model: an array in Python, float32 in base64 in JSON.
Float32Array: TypeAlias = Annotated[
    NDArray[np.float32], GetPydanticSchema(lambda *_: core_schema.any_schema(serialization=_BASE64))
]


def encode_float16(array: NDArray[np.floating]) -> str:
    """Clipped to the range of float16; infinities, such as masked scores, stay infinite."""
    clipped = np.clip(array, -MAX_FLOAT16, MAX_FLOAT16)
    return encode_array(np.where(np.isfinite(array), clipped, array).astype("<f2"))


def base64_size(count: int) -> int:
    """The number of characters for a number of bytes."""
    return (count + 2) // 3 * 4


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:
    """Encode pixels (height, width), (height, width, 3) or (height, width, 4)."""
    values = pixels[..., None] if pixels.ndim == 2 else pixels
    height, width, channels = values.shape
    if channels not in PNG_COLORS or not height or not width or pixels.dtype != np.uint8:
        raise ValueError(f"expected bytes (height, width) with 1, 3 or 4 channels, got {pixels.dtype} {pixels.shape}")
    # Each row starts with its filter type, 0 for none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), values.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, PNG_COLORS[channels], 0, 0, 0)
    content = zlib.compress(rows.tobytes(), 6)
    return PNG_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b"")


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """The image as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode("ascii")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
