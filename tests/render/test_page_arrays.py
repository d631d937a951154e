"""Arrays encoded as standard PNG files."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from regard.render.page_arrays import data_uri, png_bytes


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (4, 7, 3), (2, 9, 4)])
def test_pixels_round_trip(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with Image.open(io.BytesIO(png_bytes(pixels))) as image:
        image.load()
        np.testing.assert_array_equal(np.asarray(image), pixels)
    assert base64.b64decode(data_uri(pixels).removeprefix("data:image/png;base64,")) == png_bytes(pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2, 2), np.uint8), np.zeros((0, 2), np.uint8), np.zeros((2, 2), np.float32)]
)
def test_arrays_of_another_shape_are_rejected(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    with pytest.raises(ValueError, match="expected bytes"):
        png_bytes(pixels)
