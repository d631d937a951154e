"""Converts byte-level tokens to readable text; bytes of incomplete characters are shown in hex."""

from __future__ import annotations

import re
from functools import cache

NUMBERED = re.compile("<0x([0-9A-Fa-f]{2})>")
LONE = re.compile("[\udc80-\udcff]")  # how `surrogateescape` represents an undecodable byte
PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that represent themselves


def readable_token(token: str) -> str:
    """The text of a vocabulary token; a byte of an incomplete character is written as \\xC3.

    Tokens that are not byte-level are returned unchanged.
    """
    characters = _bytes()
    if match := NUMBERED.fullmatch(token):
        data = bytes.fromhex(match[1])
    elif all(character in characters for character in token):
        data = bytes(characters[character] for character in token)
    else:
        return token
    return LONE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02X}", data.decode("utf-8", "surrogateescape"))


@cache
def _bytes() -> dict[str, int]:
    """GPT-2's character for every byte: the byte itself if it is printable, otherwise characters from U+0100 on."""
    others = (byte for byte in range(256) if byte not in PRINTED)
    return {chr(byte): byte for byte in PRINTED} | {chr(0x100 + index): byte for index, byte in enumerate(others)}
