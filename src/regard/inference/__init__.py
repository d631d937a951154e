"""What a language model says of a text: words for its blanks, whether a text follows another, how it is surprised.

Knows loaded models and their tokenizers; knows no file but the one whose perplexity is asked, and nothing of the
command line. Reading order: ready, marks, blanks, follow, perplexity.
"""

from __future__ import annotations

from regard.inference.blanks import Assignment, Candidate, FillResult, fill_blanks
from regard.inference.follow import Follow, next_likelihood
from regard.inference.perplexity import Perplexity, measure_perplexity, read_whole

__all__ = [
    "Assignment",
    "Candidate",
    "FillResult",
    "Follow",
    "Perplexity",
    "fill_blanks",
    "measure_perplexity",
    "next_likelihood",
    "read_whole",
]
