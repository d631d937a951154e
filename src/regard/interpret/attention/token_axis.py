"""`TokenAxis`: the tokens along one side of an attention map, with the word and the segment of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.inference.generation.text_generator import token_text
from regard.text import Encoding, Tokenizer

SPACE = "␣"
SENTENCEPIECE_SPACE = "▁"  # as a token by itself it decodes to nothing
WHITESPACE_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}


@dataclass(frozen=True)
class TokenAxis:
    """Tokens with the index of the word (from 0) and of the text (0 or 1) that each belongs to."""

    tokens: tuple[str, ...]
    words: tuple[int, ...]
    segments: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.words) == len(self.segments):
            raise ValueError(f"{len(self.tokens)} tokens, {len(self.words)} words, {len(self.segments)} segments")


def axis_of_encoding(tokenizer: Tokenizer, encoding: Encoding, *, second_text: int | None = None) -> TokenAxis:
    """The axis of an encoded text or pair; each special token is a word of its own.

    `second_text` is the character offset at which the second of two joined texts starts.
    """
    segments = (
        _segments(encoding) if second_text is None else [int(start >= second_text) for start, _ in encoding.offsets]
    )
    words, index = [], -1
    previous: tuple[int, int] | None = None
    for segment, word in zip(segments, encoding.words, strict=True):
        current = None if word is None else (segment, word)
        index += current is None or current != previous
        words.append(index)
        previous = current
    return TokenAxis(_tokens(tokenizer, encoding.ids), tuple(words), tuple(segments))


def axis_of_ids(tokenizer: Tokenizer, ids: Sequence[int], *, special: int) -> TokenAxis:
    """The axis of ids whose last `special` ids are special tokens. Spaces separate words."""
    text_ids = ids[: len(ids) - special]
    words = [len(f"{tokenizer.decode(text_ids[: end + 1])}.".split()) - 1 for end in range(len(text_ids))]
    following = words[-1] + 1 if words else 0
    return TokenAxis(_tokens(tokenizer, ids), (*words, *range(following, following + special)), (0,) * len(ids))


def shift_right(first: str, axis: TokenAxis) -> TokenAxis:
    """The decoder inputs at which the tokens of an axis are predicted: the start token, then all but the last."""
    words = (0, *(word + 1 for word in axis.words[:-1]))
    return TokenAxis((first, *axis.tokens[:-1]), words, axis.segments)


def axis_of_patches(grid: tuple[int, int]) -> TokenAxis:
    """[CLS], then the patches of an image by row and column from 1."""
    names = [f"{row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1)]
    count = len(names) + 1
    return TokenAxis(("[CLS]", *names), tuple(range(count)), (0,) * count)


def _segments(encoding: Encoding) -> list[int]:
    """The token type ids; where all are 0, as in RoBERTa, the special tokens between two texts separate them."""
    if any(encoding.segments):
        return list(encoding.segments)
    text_positions = [position for position, special in enumerate(encoding.special) if not special]
    second = next((position for position in text_positions[1:] if encoding.special[position - 1]), None)
    if second is None:
        return list(encoding.segments)
    separator = next(position for position in range(text_positions[0], second) if encoding.special[position])
    return [int(position > separator) for position in range(len(encoding.ids))]


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(display_token(tokenizer, token_id) for token_id in ids)


def display_token(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as text; a token of white space alone becomes one visible sign per character."""
    text = token_text(tokenizer, token_id)
    if text == SENTENCEPIECE_SPACE and not tokenizer.decode([token_id]):
        return SPACE
    return text if text.strip() else "".join(WHITESPACE_SIGNS.get(character, SPACE) for character in text)
