"""Errors that a user can fix, and hints for unknown names.

Every message says what was expected, what was found and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OUT_OF_MEMORY = "there is not enough memory; stop other programs, use a smaller model, or fewer texts at a time"


class RegardError(Exception):
    """A failure that is not a bug in Regard; its message is written for the user."""


class InputError(RegardError, ValueError):
    """The user's input (a file, a name, an option, a value) cannot be used. The command line exits with status 2."""


class InputWarning(UserWarning):
    """A text that a model cannot read, or of which it read only a part; the result may be meaningless."""


class InputErrors(InputError):
    """Several errors in one input; the message has one line for each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory could not be allocated, on the CPU or on a GPU; libraries have no common error for it."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return the hint for an error about an unknown name: the closest choice, if there is one, and all choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choices: {', '.join(known)}"


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise InputError if the value is not among the choices."""
    known = list(choices)
    if value not in known:
        raise InputError(f"unknown {what} {value!r}; {suggest(str(value), known)}")
