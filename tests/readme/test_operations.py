"""docs/operations.md names every environment variable that the code reads, and the folders of the cache."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "regard").rglob("*.py")]


def test_every_variable_that_is_read_is_listed() -> None:
    read = r'environ(?:\.get\(|\.setdefault\(|\[)"([A-Z_]+)"|"([A-Z_]+)" in os\.environ|CACHE = "([A-Z_]+)"'
    names = {name for text in SOURCES for found in re.findall(read, text) for name in found if name}
    assert {"REGARD_CACHE", "HF_ENDPOINT", "RANK"} <= names
    assert not {name for name in names if f"`{name}" not in PAGE}


def test_every_folder_of_the_cache_is_listed() -> None:
    names = {name for text in SOURCES for name in re.findall(r'cache_folder\(\) / "([\w.]+)"', text)}
    assert names >= {"models", "verified"}
    assert not {name for name in names if f"`$REGARD_CACHE/{name}`" not in PAGE}
