"""From tokens to text while they come: never half a character, and nothing behind a stop string.

Knows tokenizers and text. Knows no tensor and no model.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import InputError
from regard.text import Tokenizer
from regard.text.spelling import readable_token

__all__ = ["TextStream", "check_stop_strings", "token_text"]

REPLACEMENT = "\ufffd"  # what a decoder puts in place of bytes that are no whole character


class TextStream:
    """The text of tokens that come one by one; `before` are tokens in front of them, which are not told again.

    What `push` and `end` return, joined, is what the tokens add to the text of `before`, up to the first stop string:
    the one that is complete first, of several that end together the longest. `stopped` tells whether there was one.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, prompt_ids: Sequence[int] = (), stop_strings: Sequence[str] = ()
    ) -> None:
        check_stop_strings(stop_strings)
        self.stopped = False
        self._tokenizer, self._stops = tokenizer, tuple(stop_strings)
        self._ids = list(prompt_ids)
        # Spaces between tokens depend on their neighbours, so what is new is found behind the text of the last ones:
        # tokens [first, told) are that neighbourhood.
        self._first, self._told = 0, len(self._ids)
        self._held = ""

    def push(self, token: int) -> str:
        """Take one more token and return the text that is now certain."""
        if self.stopped:
            return ""
        self._ids.append(token)
        new = self._new()
        if not new or new.endswith(REPLACEMENT):  # the rest of a character may still come
            return ""
        self._first, self._told = self._told, len(self._ids)
        return self._released(new)

    def end(self) -> str:
        """No more tokens come: the text that was held back."""
        if self.stopped:
            return ""
        new = self._new()
        self._told = len(self._ids)
        text = self._released(new) + self._held
        self._held = ""
        return text

    def _new(self) -> str:
        """What the tokens since the last text add to it."""
        known = self._tokenizer.decode(self._ids[self._first : self._told])
        return self._tokenizer.decode(self._ids[self._first :])[len(known) :]

    def _released(self, new: str) -> str:
        """The text up to a stop string, or else up to where one may have begun."""
        text = self._held + new
        found = [(text.index(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            after, negative = min(found)
            return text[: after + negative]
        sure = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[sure:]
        return text[:sure]


def check_stop_strings(stops: Sequence[str]) -> None:
    if "" in stops:
        raise InputError("a stop string is empty, and would end every text before it begins; give at least a character")


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """One token as text where it is some, the bytes of half a character in hex; else as the vocabulary spells it."""
    if token >= tokenizer.size:
        return f"<{token}>"  # an output layer may be wider than the vocabulary
    text = tokenizer.decode([token], special=True)
    if REPLACEMENT in text:
        return readable_token(tokenizer.token(token))
    return text or tokenizer.token(token)


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text may be the beginning of the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
