"""Extracts the payload of a finished page and the blocks of a story in reading order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def payload_of(page: str) -> Json:
    (found,) = re.findall(r'<script type="application/json" id="regard">(.*?)</script>', page, re.DOTALL)
    payload: Json = json.loads(found)
    return payload


def blocks_of(page: str, kind: str) -> list[Json]:
    return [block for block in _all_blocks(payload_of(page)["blocks"]) if block["kind"] == kind]


def _all_blocks(blocks: Iterable[Json]) -> Iterable[Json]:
    for block in blocks:
        yield block
        yield from _all_blocks(block.get("blocks", []))
