"""Checks the arguments that the page sends: texts, and whole numbers written as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from regard.errors import InputError
from regard.server.studio import Studio

Arguments = Mapping[str, object]
Payload = Mapping[str, object]
Route = Callable[[Studio, Arguments], Payload]

MAX_CHARACTERS = 20_000  # of one text
MAX_INTEGER = 10**9  # unless another limit is given
MAX_DIGITS = 20  # Python refuses to parse thousands of digits

Default = TypeVar("Default", int, None)


def text_argument(
    arguments: Arguments,
    name: str,
    default: str | None = None,
    *,
    limit: int = MAX_CHARACTERS,
    remedy: str = "Shorten it",
) -> str:
    """A text argument. A blank text gives the default; without a default it is required and must not be blank.

    `remedy` tells what to do if it has more characters than `limit`.
    """
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"{name!r} must be a text, got {'nothing' if value is None else type(value).__name__}")
    if len(value) > limit:
        raise InputError(f"{name!r} has {len(value):,} characters; the studio takes at most {limit:,}. {remedy}")
    if value.strip():
        return value
    if default is None:
        raise InputError(f"{name!r} is empty; type a text")
    return default


def integer_argument(
    arguments: Arguments, name: str, default: Default, *, least: int = 1, most: int = MAX_INTEGER
) -> int | Default:
    """An integer argument from `least` to `most`; the default if it is missing or blank."""
    value = text_argument(arguments, name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdecimal()) or len(value) > MAX_DIGITS or not least <= int(value) <= most:
        raise InputError(f"{name!r} should be a whole number from {least} to {most:,}, got {value[:40]!r}")
    return int(value)
