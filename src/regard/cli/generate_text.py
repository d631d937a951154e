"""The texts of `regard generate` on standard output, as they come. Knows no model and no options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from regard.cli.output import write_data

if TYPE_CHECKING:
    from regard.inference.generation import GeneratedText, GenerationStream
    from regard.interpret.generation.generation import Generation

__all__ = ["print_found", "print_speech", "print_stream"]


def print_stream(writing: GenerationStream, *, quiet: bool) -> None:
    """Each text as it comes; of several at once the first, and the others behind it in their order."""
    count, current, waiting = len(writing.texts), 0, [""] * len(writing.texts)
    if not quiet and count > 1:
        print(_heading(1), flush=True)
    for number, piece in writing:
        if quiet:
            continue
        waiting[number] += piece
        current = _print_ready(writing, waiting, current)
    if not quiet:
        _print_ready(writing, waiting, current)


def _print_ready(writing: GenerationStream, waiting: list[str], current: int) -> int:
    """Print what there is of the current text, and go on to the next where it is complete; which one that is."""
    while current < len(waiting):
        write_data(waiting[current])
        waiting[current] = ""
        if writing.texts[current].reason == "interrupted":
            break
        current += 1
        sys.stdout.write("\n" if current == len(waiting) else f"\n{_heading(current + 1)}\n")
    sys.stdout.flush()
    return current


def print_found(texts: list[GeneratedText], *, quiet: bool) -> None:
    if quiet:
        return
    for number, one in enumerate(texts, 1):
        if len(texts) > 1:
            print(f"{_heading(number)}  score {one.score:.4f}")
        write_data(f"{one.text}\n")


def print_speech(speech: Generation, *, quiet: bool) -> None:
    searched = speech.config.beam is not None
    for tokens in speech.steps():
        if not quiet and not searched:
            write_data("".join(token.text for token in tokens))
            sys.stdout.flush()
    if searched:
        print_found(speech.texts, quiet=quiet)
    elif not quiet:
        print(flush=True)


def _heading(number: int) -> str:
    return f"=== {number}"
