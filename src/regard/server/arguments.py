"""Checks the arguments that the page sends: texts, and whole numbers written as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from regard.errors import InputError
from regard.server.studio import Studio

__all__ = ["LARGEST", "LIMIT", "Arguments", "Payload", "Route", "counted", "said"]

Arguments = Mapping[str, object]
Payload = Mapping[str, object]
Route = Callable[[Studio, Arguments], Payload]

LIMIT = 20_000  # characters of one text
LARGEST = 10**9  # number, where no other limit is named
DIGITS = 20  # Python refuses to read a number of thousands of them

Default = TypeVar("Default", int, None)


def said(
    arguments: Arguments, name: str, default: str | None = None, *, limit: int = LIMIT, remedy: str = "Shorten it"
) -> str:
    """A text among the arguments. A blank one is the default; without a default it must be there and not be blank.

    `remedy` is what to do where it has more characters than `limit`.
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


def counted(arguments: Arguments, name: str, default: Default, *, least: int = 1, most: int = LARGEST) -> int | Default:
    """A whole number from `least` to `most` among the arguments; where there is none or it is blank, the default."""
    value = said(arguments, name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdecimal()) or len(value) > DIGITS or not least <= int(value) <= most:
        raise InputError(f"{name!r} should be a whole number from {least} to {most:,}, got {value[:40]!r}")
    return int(value)
