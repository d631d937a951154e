"""What a language model says of a text: words for its blanks, whether a text follows another, how it is surprised.

Knows loaded models and their tokenizers; knows no file but the one whose perplexity is asked, and nothing of the
command line. Reading order: ready, marks, blanks, follow, perplexity.
"""

from __future__ import annotations

from regard.inference.masked_lm import Assignment, Candidate, FillResult, fill_blanks
from regard.inference.next_sentence import NextSentence, predict_next_sentence
from regard.inference.perplexity import Perplexity, measure_perplexity, read_text_file

__all__ = [
    "Assignment",
    "Candidate",
    "FillResult",
    "NextSentence",
    "Perplexity",
    "fill_blanks",
    "measure_perplexity",
    "predict_next_sentence",
    "read_text_file",
]
