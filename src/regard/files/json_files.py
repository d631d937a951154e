"""Strict JSON files of bounded size, with errors that name line and column.

Files may come from an untrusted source. Documents that Regard writes for itself can contain a checksum of their own
content, so that damage is detected when they are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from regard.errors import InputError, RegardError
from regard.files.file_input import open_file, read_up_to

CHECKSUM = "checksum"
SHA256 = re.compile(r"sha256:[0-9a-f]{64}")

# An unterminated string is also one token: otherwise a malicious file makes the search quadratic.
TOKEN = re.compile(r'(?s)"(?:[^"\\]|\\.)*+"?|[^\s,:\[\]{}"]+')


class NoChecksum(InputError):
    """A JSON document without a checksum of its own, so Regard did not write it."""


class _Refused(Exception):
    """JSON that Python accepts and Regard does not; `token` is the text to locate."""

    def __init__(self, message: str, *, token: str) -> None:
        super().__init__(message)
        self.token = token


def read_json(path: str | os.PathLike[str], *, limit: int = 16_000_000) -> dict[str, object]:
    """Read a JSON object from a file of at most `limit` bytes; repeated keys and non-finite numbers are refused."""
    return _expect_object(read_json_value(path, limit=limit), path)


def read_json_value(path: str | os.PathLike[str], *, limit: int = 16_000_000) -> object:
    """Like `read_json`, for a file that may contain any JSON value."""
    return parse_json(read_document(path, limit=limit), name=path)


def read_document(path: str | os.PathLike[str], *, limit: int = 16_000_000) -> bytes:
    """Read the bytes of a JSON file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}; expected a JSON file")
    try:
        with open_file(path) as file:
            data = read_up_to(file, limit + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise InputError(f"{path}: refused: larger than {limit:,} bytes, which is too large for such a file")
    return data


def parse_json(data: bytes, *, name: object) -> object:
    """Parse the content of a file with any JSON value; errors have its name."""
    text = _decode(data, name)
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}; fix it, or download or copy it again"
        ) from error
    except _Refused as error:
        raise InputError(f"{name}{_location(text, error.token)}: {error}; fix it there") from None
    except RecursionError:
        raise InputError(f"{name}: refused: its brackets are nested too deeply for a model file") from None
    except (ValueError, MemoryError) as error:
        raise InputError(f"{name}: refused: {error or 'it needs too much memory'}") from None
    return value


def json_bytes(value: object) -> bytes:
    """Serialize a value as JSON; equal values give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def json_text(document: object, *, indent: int | None = None) -> str:
    """Serialize a result for users, compact unless `indent` is given; RegardError if it contains NaN or infinity."""
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    except ValueError as error:
        if "JSON compliant" not in str(error):
            raise
        raise RegardError(
            "the result contains NaN or infinity, which JSON cannot represent; check for a damaged checkpoint or an "
            "overflow"
        ) from None


def with_checksum(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document with the SHA-256 of its content as an additional value, for `read_checked_json`."""
    return {**document, CHECKSUM: _checksum(document)}


def read_checked_json(path: str | os.PathLike[str], *, limit: int = 16_000_000) -> dict[str, object]:
    """Read a document written with `with_checksum`. Raises InputError if the content does not match the checksum."""
    return parse_checked_json(read_document(path, limit=limit), name=path)


def parse_checked_json(data: bytes, *, name: object) -> dict[str, object]:
    """Like `read_checked_json`, of the content of a file."""
    document = _expect_object(parse_json(data, name=name), name)
    checksum = document.pop(CHECKSUM, None)
    # If the key of the checksum is damaged, the checksum is still there under another key.
    if checksum is None and not any(isinstance(v, str) and SHA256.fullmatch(v) for v in document.values()):
        raise NoChecksum(f"{name} has no checksum: Regard did not write it")
    if checksum != _checksum(document):
        raise InputError(f"{name} is damaged: its content does not match its checksum")
    return document


def _checksum(document: Mapping[str, object]) -> str:
    return f"sha256:{hashlib.sha256(json_bytes(dict(document))).hexdigest()}"


def _expect_object(value: object, name: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"{name}:1:1: expected a JSON object {{...}}, found {json.dumps(value)[:20]}")
    return value


def _decode(data: bytes, name: object) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise InputError(
            f"{name}:{line}:{column}: byte {data[error.start]:#04x} is not UTF-8; save it as UTF-8"
        ) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _Refused(f"the key {key!r} appears twice in one object", token=json.dumps(key, ensure_ascii=False))
        result[key] = value
    return result


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise _Refused(f"{literal[:20]} is not a finite number", token=literal)
    return value


def _location(text: str, token: str) -> str:
    """Return `:line:column` of the last occurrence of `token`."""
    start = max((match.start() for match in TOKEN.finditer(text) if match.group() == token), default=None)
    if start is None:
        return ""
    return f":{text.count(chr(10), 0, start) + 1}:{start - text.rfind(chr(10), 0, start)}"
