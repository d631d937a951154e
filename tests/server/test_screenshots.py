"""Screenshots of the studio: one for every view, none too large."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("playwright")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def screenshots() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "web" / "screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module in sys.modules
    spec.loader.exec_module(module)
    return module


def test_every_view_has_a_picture(screenshots: ModuleType) -> None:
    views_with_picture = {shot.view for shot in screenshots.PICTURES.values()}
    assert screenshots.views() - screenshots.ELSEWHERE == views_with_picture - screenshots.PAGES
    assert {"attention", "compare"} <= views_with_picture


def test_pictures_in_the_docs_are_listed_and_small(screenshots: ModuleType) -> None:
    found = {path.stem.removeprefix("studio-"): path.stat().st_size for path in (ROOT / "docs").glob("studio-*.png")}
    assert set(found) <= set(screenshots.PICTURES) and "attention" in found
    assert {name: size for name, size in found.items() if size > screenshots.LARGEST} == {}


def test_a_picture_is_compressed_and_keeps_its_colors(screenshots: ModuleType) -> None:
    def shrink(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> tuple[int, Image.Image]:
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "PNG")
        small = screenshots.small(content.getvalue())
        return len(small), Image.open(io.BytesIO(small)).convert("RGB")

    plain = np.full((50, 50, 3), 255, np.uint8)
    plain[10, 10] = 0xD5, 0x5E, 0x00
    size, image = shrink(plain)
    assert size < 500 and np.array_equal(np.asarray(image), plain)
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    size, image = shrink(noise)
    assert size < screenshots.LARGEST and image.size == (400, 400)
