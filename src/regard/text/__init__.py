"""Converts text to token ids and back, with the character offsets of every token in the original text."""

from __future__ import annotations

from regard.text.tokenizer import Encoding, TokenIds, Tokenizer

__all__ = ["Encoding", "TokenIds", "Tokenizer"]
