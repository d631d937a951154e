"""Incremental decoding of tokens to text: never half a character, and nothing after a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import InputError
from regard.text import Tokenizer
from regard.text.tokenizer import readable_token

REPLACEMENT = "\ufffd"  # what decoding returns for an incomplete character


class TextStream:
    """The text of tokens that arrive one by one after `prompt_ids`, whose text is not repeated.

    The strings returned by `push` and `end`, joined, are what the tokens add to the text of the prompt, up to the first
    stop string: the one that is complete first, of several that end together the longest. `stopped`: there was one.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, prompt_ids: Sequence[int] = (), stop_strings: Sequence[str] = ()
    ) -> None:
        check_stop_strings(stop_strings)
        self.stopped = False
        self._tokenizer, self._stop_strings = tokenizer, tuple(stop_strings)
        self._ids = list(prompt_ids)
        # Spaces between tokens depend on their neighbors, so new text is found after the text of the last tokens:
        # tokens [first, emitted) are that context.
        self._first, self._emitted = 0, len(self._ids)
        self._held = ""

    def push(self, token: int) -> str:
        """Add a token and return the text that is now final."""
        if self.stopped:
            return ""
        self._ids.append(token)
        new = self._new()
        if not new or new.endswith(REPLACEMENT):  # the rest of a character may follow
            return ""
        self._first, self._emitted = self._emitted, len(self._ids)
        return self._released(new)

    def end(self) -> str:
        """Return the text that was held back; no more tokens follow."""
        if self.stopped:
            return ""
        new = self._new()
        self._emitted = len(self._ids)
        text = self._released(new) + self._held
        self._held = ""
        return text

    def _new(self) -> str:
        """The text that the last tokens add."""
        known = self._tokenizer.decode(self._ids[self._first : self._emitted])
        return self._tokenizer.decode(self._ids[self._first :])[len(known) :]

    def _released(self, new: str) -> str:
        """The text up to a stop string, or up to where one may have begun."""
        text = self._held + new
        found = [(text.index(stop) + len(stop), -len(stop)) for stop in self._stop_strings if stop in text]
        if found:
            self.stopped, self._held = True, ""
            after, negative = min(found)
            return text[: after + negative]
        sure = len(text) - max((_overlap(text, stop) for stop in self._stop_strings), default=0)
        self._held = text[sure:]
        return text[:sure]


def check_stop_strings(stops: Sequence[str]) -> None:
    if "" in stops:
        raise InputError("a stop string is empty and would end every text at once; expected at least one character")


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token as text, bytes of an incomplete character in hex, other tokens as the vocabulary spells them."""
    if token >= tokenizer.size:
        return f"<{token}>"  # an output layer may be wider than the vocabulary
    text = tokenizer.decode([token], skip_special_tokens=False)
    if REPLACEMENT in text:
        return readable_token(tokenizer.token(token))
    return text or tokenizer.token(token)


def _overlap(text: str, stop: str) -> int:
    """The number of characters at the end of the text that may begin the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
