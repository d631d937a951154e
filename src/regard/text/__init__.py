"""Converts text to token ids and back, with the character offsets of every token in the original text.

Reading order: tokenizer, encoding, vocabulary, tokenizer_config.
"""

from __future__ import annotations

from regard.text.encoding import Encoding
from regard.text.tokenizer import Tokenizer

__all__ = ["Encoding", "Tokenizer"]
