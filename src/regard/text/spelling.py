"""Tokens of bytes as somebody can read them: whole characters as they are, the bytes of half ones in hex."""

from __future__ import annotations

import re
from functools import cache

__all__ = ["readable_token"]

NUMBERED = re.compile("<0x([0-9A-Fa-f]{2})>")
LONE = re.compile("[\udc80-\udcff]")  # how Python keeps a byte that is of no character
PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that stand for themselves


def readable_token(token: str) -> str:
    """The text of a vocabulary's token; a byte that is of no whole character is written as \\xC3.

    What is no token of bytes stays as it is.
    """
    signs = _bytes()
    if found := NUMBERED.fullmatch(token):
        data = bytes.fromhex(found[1])
    elif all(sign in signs for sign in token):
        data = bytes(signs[sign] for sign in token)
    else:
        return token
    return LONE.sub(lambda one: f"\\x{ord(one[0]) - 0xDC00:02X}", data.decode("utf-8", "surrogateescape"))


@cache
def _bytes() -> dict[str, int]:
    """GPT-2's sign of every byte: the byte's own where that can be seen, and behind those the signs from U+0100."""
    others = (byte for byte in range(256) if byte not in PRINTED)
    return {chr(byte): byte for byte in PRINTED} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
