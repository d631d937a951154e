"""The tokens along a map: how they are spelled, which word each belongs to, and which text.

Knows encodings and ids. Knows no tensor and no model.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.inference.generation.said import spelled
from regard.interpret.attention.maps import TokenAxis
from regard.text import Encoding, Tokenizer

__all__ = ["axis_of_encoding", "axis_of_ids", "axis_of_patches", "display_token", "shift_right"]

SPACE = "␣"
PIECE = "▁"  # a space in a vocabulary of SentencePiece; alone it has no text
SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}  # of other white space than spaces


def axis_of_encoding(tokenizer: Tokenizer, found: Encoding, *, second: int | None = None) -> TokenAxis:
    """Of a text or pair. A special token is a word of its own. `second`: the offset at which a joined text begins."""
    segments = _segments(found) if second is None else [int(start >= second) for start, _ in found.offsets]
    words, number = [], -1
    before: tuple[int, int] | None = None
    for segment, word in zip(segments, found.words, strict=True):
        here = None if word is None else (segment, word)
        number += here is None or here != before
        words.append(number)
        before = here
    return TokenAxis(_tokens(tokenizer, found.ids), tuple(words), tuple(segments))


def axis_of_ids(tokenizer: Tokenizer, ids: Sequence[int], *, special: int) -> TokenAxis:
    """Of ids whose last `special` are no words of the text. A space parts words and belongs to the one behind it."""
    plain = ids[: len(ids) - special]
    words = [len(f"{tokenizer.decode(plain[: end + 1])}.".split()) - 1 for end in range(len(plain))]
    following = words[-1] + 1 if words else 0
    return TokenAxis(_tokens(tokenizer, ids), (*words, *range(following, following + special)), (0,) * len(ids))


def shift_right(first: str, side: TokenAxis) -> TokenAxis:
    """What a decoder has read when it says the tokens of a side: its first token, then all of them but the last."""
    words = (0, *(word + 1 for word in side.words[:-1]))
    return TokenAxis((first, *side.tokens[:-1]), words, side.segments)


def axis_of_patches(grid: tuple[int, int]) -> TokenAxis:
    """[CLS], then the patches by row and column from 1."""
    names = [f"{row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1)]
    count = len(names) + 1
    return TokenAxis(("[CLS]", *names), tuple(range(count)), (0,) * count)


def _segments(found: Encoding) -> list[int]:
    """As the model's segments; where those are all one, as RoBERTa's are, the marks between two texts part them."""
    if any(found.segments):
        return list(found.segments)
    plain = [place for place, special in enumerate(found.special) if not special]
    gap = next((place for place in plain[1:] if found.special[place - 1]), None)
    if gap is None:
        return list(found.segments)
    mark = next(place for place in range(plain[0], gap) if found.special[place])
    return [int(place > mark) for place in range(len(found.ids))]


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(display_token(tokenizer, number) for number in ids)


def display_token(tokenizer: Tokenizer, number: int) -> str:
    """A token as text; of one that is only white space, a sign for each character."""
    text = spelled(tokenizer, number)
    if text == PIECE and not tokenizer.decode([number]):
        return SPACE
    return text if text.strip() else "".join(SIGNS.get(sign, SPACE) for sign in text)
