"""SVG and PNG of results, drawn by the page's own script in an embedded JavaScript engine."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl
from zlib import crc32

from regard.errors import RegardError
from regard.files.output_file import PNG_MARK, SVG_MARK
from regard.render.bundle import SCRIPT, STATIC, check_built, script_json

HEADER_END = 33  # bytes of a PNG's signature and header
SCALE = 2  # pixels of a PNG for each unit of the SVG


def svg(page_data: Mapping[str, object], static: Path = STATIC) -> str:
    """A complete SVG document of what the page shows when it is opened with this data."""
    import quickjs

    check_built(static)
    view, _, query = str(page_data.get("place", "")).removeprefix("#").partition("?")
    route = {"view": view, "parameters": dict(parse_qsl(query))}
    engine = quickjs.Context()
    engine.eval((static / SCRIPT).read_text(encoding="utf-8"))
    document: str = engine.get("drawSvg")(script_json(page_data), script_json(route))
    return document.replace("<svg", SVG_MARK, 1)


def png(document: str) -> bytes:
    """An SVG document as PNG, enlarged SCALE times, with the fonts of this system."""
    from resvg_py import svg_to_bytes

    if not all(map(_has_font, set(re.findall('font-family="([^"]*)"', document)))):
        raise RegardError(
            "a .png needs a font, and none of those that the page uses is installed. Install DejaVu "
            "(fonts-dejavu-core or dejavu-sans-fonts), or save the result as .svg or .html"
        )
    image: bytes = svg_to_bytes(svg_string=document, zoom=SCALE)
    chunk = b"tEXt" + PNG_MARK.encode()
    return (
        image[:HEADER_END]
        + struct.pack(">I", len(chunk) - 4)
        + chunk
        + struct.pack(">I", crc32(chunk))
        + image[HEADER_END:]
    )


@cache
def _has_font(families: str) -> bool:
    """Whether a letter leaves a mark: without a font, text is left out silently."""
    from resvg_py import svg_to_bytes

    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><text y="16" font-family="{families}">'
    letter, empty = (svg_to_bytes(svg_string=f"{start}{text}</text></svg>") for text in ("A", ""))
    return letter != empty
