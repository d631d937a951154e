"""Strategies for fuzzing: valid documents with a few changes, arbitrary JSON, arbitrary bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

# Values that often break parsers: wrong types, limits of number types, overlong numbers, incomplete characters.
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 255, 2**31, 2**32, 2**63, 2**64, 10**9, 10**400, 0.5, -0.0, 1e308, float("nan")),
    *("", "x", "0", "9" * 5000, "\ud800", "\0", "../../etc/passwd", "a" * 3000, "é\u2028", "[PAD]"),
    *([], {}, [[]], [None], {"": None}, [0] * 300, ["x"] * 50),
]
SCALARS = st.one_of(st.sampled_from(ODD), st.integers(-(2**70), 2**70), st.text(max_size=8), st.floats())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
CHANGES = ("replace", "replace", "replace", "delete", "copy", "add", "number")
EDITS = ("delete", "insert", "insert", "repeat", "flip", "digits", "nest", "cut")


def _dumps(value: object) -> bytes:
    return json.dumps(value).encode()


def _locations(value: Any) -> list[tuple[Any, Any]]:
    """Every location in a document: the enclosing object or list, and the key there."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        inner = stack.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        for key in keys:
            found.append((inner, key))
            stack.append(inner[key])
    return found


def _changed(document: Any, changes: Sequence[tuple[int, str, Any]]) -> bytes:
    document = copy.deepcopy(document)
    for index, change, value in changes:
        locations = _locations(document)
        if not locations:
            break
        around, key = locations[index % len(locations)]
        value = copy.deepcopy(value)  # a later change may modify it, and must not affect the next case
        if change == "delete":
            del around[key]
        elif change == "copy":
            around[key] = copy.deepcopy(locations[(index * 7 + 3) % len(locations)][0])
        elif change == "add" and isinstance(around, dict):
            around[str(value)[:20]] = value
        elif change == "number" and isinstance(around[key], int):
            around[key] = around[key] * 10**9 if index % 2 else -around[key]
        else:
            around[key] = value
    return _dumps(document)


def _edited(content: bytes, edits: Sequence[tuple[str, int, int, bytes]]) -> bytes:
    for edit, start, length, piece in edits:
        at, size = start % (len(content) + 1), length % 40
        if edit == "delete":
            content = content[:at] + content[at + size :]
        elif edit == "insert":
            content = content[:at] + piece + content[at:]
        elif edit == "repeat":
            content = content[:at] + content[at : at + size] * 20 + content[at + size :]
        elif edit == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ (1 << length % 8)]) + content[at + 1 :]
        elif edit == "digits":
            content = content[:at] + b"9" * (length % 6000) + content[at:]
        elif edit == "nest":
            content = content[:at] + (b"[" if size % 2 else b'{"a":') * (length % 3000) + content[at:]
        elif edit == "cut":
            content = content[:at]
    return content


def documents(*valid: Any) -> st.SearchStrategy[bytes]:
    """JSON documents, most of them a valid one with some values changed."""
    change = st.tuples(st.integers(0, 10**6), st.sampled_from(CHANGES), VALUES)
    changed = st.builds(_changed, st.sampled_from(valid), st.lists(change, min_size=1, max_size=3))
    return st.one_of(changed, changed, texts(*map(_dumps, valid)), VALUES.map(_dumps))


def texts(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Bytes, most of them a valid file with some bytes changed."""
    pieces = st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b'"', b"\n", b"\r\n", b"\t", b",", b"{", b"}", b"\\u", b"\xff", b"\xef\xbb\xbf", b"\0", b"1e999"]
        ),
    )
    edit = st.tuples(st.sampled_from(EDITS), st.integers(0, 10**6), st.integers(0, 10**6), pieces)
    edited = st.builds(_edited, st.sampled_from(valid), st.lists(edit, min_size=1, max_size=4))
    return st.one_of(edited, edited, edited, st.binary(max_size=200))
