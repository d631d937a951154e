"""Escapes control characters, so that no text can steer the terminal that it is printed on.

Knows which characters a terminal obeys and how they are written instead. Knows nothing of streams, rich or files.
"""

from __future__ import annotations

import re

__all__ = ["escape_controls", "escape_json"]

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


def _escape(found: re.Match[str]) -> str:
    character, code = found[0], ord(found[0])
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
