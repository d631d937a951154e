"""Escapes control characters, so that no text can steer the terminal that it is printed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

__all__ = ["EscapingStream", "escape_controls", "escape_json", "escape_stream", "raw_stream"]

# C0 but "\n" and "\t", DEL, C1; line and paragraph separators; bidirectional embeddings, overrides and isolates; and
# halves of surrogate pairs, which no encoding carries.
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINES = re.compile(f"[{_STEERING}]")
_IN_A_LINE = re.compile(f"[{_STEERING}\n\t]")
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def escape_controls(text: str, *, multiline: bool = False) -> str:
    r"""Replace control characters by escapes as in Python source: \x1b, \r, \u202e.

    With `multiline`, line ends and tabs belong to the layout and stay. A second call changes nothing.
    """
    return (_IN_LINES if multiline else _IN_A_LINE).sub(_escape, text)


def escape_json(document: str) -> str:
    r"""Replace what `json.dumps` leaves of control characters by JSON's own escapes; the document means the same.

    Outside its strings a document has no such character.
    """
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


class EscapingStream:
    """A text stream with control characters escaped in all that is written to it; otherwise the stream it is made of.

    rich writes to `rich_proxied_file` where a stream has one: so colors and bars of our own reach the terminal.
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
    """The stream to print on instead of this one."""
    return cast(TextIO, EscapingStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """The stream itself, below what escapes and below what rich puts there while it draws."""
    while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = inner
    return stream


def _escape(found: re.Match[str]) -> str:
    character, code = found[0], ord(found[0])
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
