"""The errors a user can mend, and the hint for a name that does not exist.

Every message says what was expected, what came and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "InputErrors", "RegardError", "check_choice", "suggest"]


class RegardError(Exception):
    """Something went wrong that is not a defect of Regard; the message is meant for the user."""


class InputError(RegardError, ValueError):
    """What the user gave (a file, a name, an option, a value) cannot be used; the command line exits with 2."""


class InputErrors(InputError):
    """Several faults of one input; the message has a line for each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


def suggest(name: str, choices: Iterable[str]) -> str:
    """The hint that ends an error about an unknown name: the nearest choice if one is near, and all choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choices: {', '.join(known)}"


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    known = list(choices)
    if value not in known:
        raise InputError(f"unknown {what} {value!r}; {suggest(str(value), known)}")
