"""Escapes control characters, so that printed text cannot control the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

# C0 except "\n" and "\t", DEL, C1; line and paragraph separators; bidirectional embeddings, overrides and isolates; and
# lone surrogates, which cannot be encoded.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_MULTILINE = re.compile(f"[{_CONTROLS}]")
_SINGLE_LINE = re.compile(f"[{_CONTROLS}\n\t]")
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def escape_controls(text: str, *, multiline: bool = False) -> str:
    r"""Replace control characters with escapes as in Python source: \x1b, \r, \u202e.

    With `multiline`, line breaks and tabs are kept. A second call changes nothing.
    """
    return (_MULTILINE if multiline else _SINGLE_LINE).sub(_escape, text)


def escape_json(document: str) -> str:
    r"""Replace the control characters that `json.dumps` leaves with JSON escapes; the document keeps its meaning.

    Outside of its strings, a document has no such characters.
    """
    return _MULTILINE.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


class EscapingStream:
    """A text stream that escapes control characters in everything written to it and otherwise forwards to `stream`.

    rich writes to `rich_proxied_file` where a stream has one, so Regard's own colors and progress bars still work.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_controls(text, multiline=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def escape_stream(stream: TextIO) -> TextIO:
    """Wrap a stream so that it escapes control characters."""
    return cast(TextIO, EscapingStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """Return the underlying stream, without the escaping wrapper and without rich's proxies."""
    while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = inner
    return stream


def _escape(match: re.Match[str]) -> str:
    character, code = match[0], ord(match[0])
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
